import difflib,os
from pathlib import Path
R=Path('/work/wt/price'); OUT=Path('/tmp/price/slips')
def slip(stage,name,file,edits,mistake,killed,says,only=True):
    src=(R/'solutions'/stage/file).read_text(); new=src
    for a,b in edits:
        assert a in new,(stage,name,a); new=new.replace(a,b,1)
    rel=f'solutions/{stage}/{file}'
    d=''.join(difflib.unified_diff(src.splitlines(1),new.splitlines(1),'a/'+rel,'b/'+rel))
    head=f'Mistake: {mistake}\nKilled-by: {killed}\n'+('Only: yes\n' if only else '')+f'Says: {says}\n'
    p=OUT/stage; p.mkdir(parents=True,exist_ok=True); (p/f'{name}.patch').write_text(head+d)
n1='01_naive_ddp';f1='naive_ddp.cpp'
buf=('''      broadcast_from_rank_0(buffer, group_);
''','''      broadcast(buffer, group_);
''')
slip(n1,'strided_buffer_sent_as_it_is',f1,[buf],'sends buffers as they are, of which some are not dense','construction_broadcasts_rank_0','has gaps')
slip(n1,'strided_gradient',f1,[('const at::Tensor contiguous = gradient.contiguous();\n    all_reduce','const at::Tensor contiguous = gradient;\n    all_reduce')],'reduces each gradient as it is','gradients_are_the_mean_over_ranks','has gaps|layouts')
slip(n1,'undefined_gradient_refused',f1,[('''    if (!gradient.defined()) {
      gradient = at::zeros_like(parameter);
    }
''','''    TORCH_CHECK(gradient.defined(), "DDP: parameter ", index, " has no gradient");
''')],'takes a gradient that is missing for an error','missing_gradients_count_as_zero','has no gradient')
slip(n1,'half_refused',f1,[('''                " is not a leaf of the autograd graph, so backward leaves no gradient in it");
''','''                " is not a leaf of the autograd graph, so backward leaves no gradient in it");
    TORCH_CHECK(parameters[i].scalar_type() != at::kHalf, "DDP: half precision");
''')],'refuses half','gradients_are_the_mean_over_ranks','half precision')
slip(n1,'tied_refused',f1,[('''    if (seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
''','''    const bool first = seen.insert(parameters[i].unsafeGetTensorImpl()).second;
    TORCH_CHECK(first, "DDP: parameter ", i, " is listed twice");
    if (first) {
''')],'refuses tied weights','gradients_are_the_mean_over_ranks','listed twice')
slip(n1,'empty_refused',f1,[('''  const at::Tensor values = tensor.detach();          // same''','''  TORCH_CHECK(tensor.numel() > 0, "DDP: an empty tensor");
  const at::Tensor values = tensor.detach();          // same''')],'refuses empty tensors','construction_broadcasts_rank_0','an empty tensor')
slip(n1,'one_rank_refused',f1,[('''  TORCH_CHECK(group, "DDP: the process group is null");
''','''  TORCH_CHECK(group, "DDP: the process group is null");
  TORCH_CHECK(group->getSize() > 1, "DDP: a single rank");
''')],'refuses a world of one','gradients_are_the_mean_over_ranks','a single rank')
slip(n1,'integer_buffers_as_floats',f1,[('''      broadcast_from_rank_0(buffer, group_);
''','''      const at::Tensor copy = buffer.to(at::kFloat).contiguous();
      broadcast(copy, group_);
      buffer.copy_(copy);
''')],'sends every buffer as float32','construction_broadcasts_rank_0','is wrong')
slip(n1,'two_ranks_alone',f1,[('''  TORCH_CHECK(group, "DDP: the process group is null");
''','''  TORCH_CHECK(group, "DDP: the process group is null");
  TORCH_CHECK(group->getSize() != 3, "DDP: three ranks");
''')],'refuses three ranks','gradients_are_the_mean_over_ranks','three ranks')
n2='02_overlapped_ddp';f2='overlapped_ddp.cpp'
slip(n2,'strided_buffer_sent_as_it_is',f2,[buf],'sends buffers as they are, of which some are not dense','construction_broadcasts_rank_0','has gaps')
slip(n2,'strided_gradient',f2,[('parameter.sent = gradient.contiguous();','parameter.sent = gradient;')],'reduces gradients as they are','gradients_are_the_mean_over_ranks','has gaps|layouts')
slip(n2,'divided_by_two',f2,[('sum.div_(group_->getSize());','sum.div_(2);')],'divides by 2, the world size it was tried with','gradients_are_the_mean_over_ranks','exactly')
slip(n2,'half_refused',f2,[('''    const at::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.layout()''','''    const at::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.scalar_type() != at::kHalf, "half");
    TORCH_CHECK(gradient.layout()''')],'refuses half','gradients_are_the_mean_over_ranks','half')
slip(n2,'empty_refused',f2,[('''    const at::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.layout()''','''    const at::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.numel() > 0, "an empty gradient");
    TORCH_CHECK(gradient.layout()''')],'refuses empty gradients','gradients_are_the_mean_over_ranks','an empty')
slip(n2,'missing_waited_for',f2,[('''      if (parameter.work) {
        land(parameter);
      }
''','''      TORCH_CHECK(parameter.work, "no gradient of ", parameter.index);
      land(parameter);
''')],'takes a missing gradient for an error','gradients_are_the_mean_over_ranks','no gradient')
n3='03_bucketed_ddp';f3='bucketed_ddp.cpp'
slip(n3,'strided_buffer_sent_as_it_is',f3,[buf],'sends buffers as they are, of which some are not dense','construction_broadcasts_rank_0','has gaps')
slip(n3,'divided_by_two',f3,[('bucket.flat.div_(group_->getSize());','bucket.flat.div_(2);')],'divides by 2','gradients_are_the_mean_over_ranks','exactly')
slip(n3,'undefined_gradient_refused',f3,[('''    if (!gradient.defined()) {
      member.place.zero_();''','''    TORCH_CHECK(gradient.defined(), "no gradient of ", member.index);
    if (!gradient.defined()) {
      member.place.zero_();''')],'takes a missing gradient for an error','gradients_are_the_mean_over_ranks','no gradient')
slip(n3,'half_refused',f3,[('''    check_kind(bucket, member, member.parameter);
    if''','''    check_kind(bucket, member, member.parameter);
    TORCH_CHECK(member.place.scalar_type() != at::kHalf, "half");
    if''')],'refuses half','gradients_are_the_mean_over_ranks','half')
slip(n3,'strided_gradient',f3,[('''      member.place.copy_(gradient);''','''      member.place.flatten().copy_(gradient.view({-1}));''')],'takes each gradient for contiguous','gradients_are_the_mean_over_ranks','view')
n5='05_ring_all_reduce'
chk='''  TORCH_CHECK(tensor.defined(), function, ": the tensor is undefined");
'''
def s5(name,cond,text,killed):
    slip(n5,name,'ring.h',[(chk,chk+f'  TORCH_CHECK({cond}, "{text}");\n')],text,killed,text)
s5('half_refused','tensor.scalar_type() != at::kHalf','half is refused','reduce_scatter_completes_chunk_r_on_rank_r')
s5('empty_refused','tensor.numel() > 0','a tensor without elements is refused','reduce_scatter_completes_chunk_r_on_rank_r')
s5('strided_refused','tensor.is_contiguous()','a strided tensor is refused','tensors_need_not_be_contiguous')
s5('one_rank_refused','group->getSize() > 1','a single rank is refused','reduce_scatter_completes_chunk_r_on_rank_r')
s5('three_ranks_refused','group->getSize() != 3','three ranks are refused','reduce_scatter_completes_chunk_r_on_rank_r')
