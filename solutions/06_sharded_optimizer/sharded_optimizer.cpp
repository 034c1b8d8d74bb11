#include "06_sharded_optimizer/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "ddp/gradient_hooks.h"
#include "ddp/plans/bucket_plan.h"

namespace ddp {
namespace {

constexpr const char* kWho = "sharded optimizer: ";  // begins all messages

void broadcast_from_rank_0(const at::Tensor& tensor, const ProcessGroupPtr& group) {
  const at::Tensor contiguous = tensor.detach().contiguous();  // a copy only where it must be one
  broadcast(contiguous, group);
  tensor.detach().copy_(contiguous);
}

/// A trainable parameter and where its elements begin in its flat bucket.
struct Member {
  std::size_t index;  // in the caller's list, by which error messages name it
  at::Tensor parameter;
  std::int64_t offset;
  GradientHook hook = {};
  bool ready = false;  // its gradient is this step's, and may be on its way

  at::Tensor place_in(const at::Tensor& flat) const {
    return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
  }
};

struct Bucket {
  std::vector<Member> members;
  std::size_t missing;  // members not ready yet
  at::Tensor shard;     // this rank's chunk of the parameters: a leaf, which the optimizer updates
  std::unique_ptr<torch::optim::Optimizer> optimizer = {};
  at::Tensor flat = {};  // all gradients or all parameters, until they have arrived
  WorkPtr work = {};

  /// Without values, and padded so that all ranks' chunks are equal.
  at::Tensor new_flat(int ranks) const {
    return at::empty({shard.numel() * ranks}, shard.options());
  }

  /// Waits for what is on its way, and lets go of the flat tensor.
  at::Tensor arrive() {
    std::exchange(work, nullptr)->wait();
    return std::exchange(flat, at::Tensor());
  }
};

Bucket make_bucket(const std::vector<std::size_t>& indices,
                   const std::vector<at::Tensor>& parameters, int ranks) {
  Bucket bucket{.members = {}, .missing = indices.size(), .shard = {}};
  std::int64_t elements = 0;
  for (const std::size_t index : indices) {
    bucket.members.push_back({.index = index, .parameter = parameters[index], .offset = elements});
    elements += parameters[index].numel();
  }
  const std::int64_t chunk = (elements + ranks - 1) / ranks;
  bucket.shard = at::zeros({chunk}, parameters[indices[0]].options()).set_requires_grad(true);
  return bucket;
}

class Shards : public ShardedOptimizer {
 public:
  Shards(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
         ProcessGroupPtr group, const OptimizerFactory& make_optimizer,
         const ShardedOptimizerOptions& options)
      : group_(std::move(group)), ranks_(group_->getSize()), overlap_(options.overlap) {
    for (const auto& indices : plan_buckets(parameters, options.cap_bytes)) {
      Bucket bucket = make_bucket(indices, parameters, ranks_);
      if (bucket.shard.numel() == 0) {
        std::ranges::move(bucket.members, std::back_inserter(without_elements_));
        continue;
      }
      bucket.optimizer = make_optimizer({bucket.shard});
      TORCH_CHECK(bucket.optimizer, kWho, "the factory has returned no optimizer");
      buckets_.push_back(std::move(bucket));
    }
    const at::NoGradGuard no_grad;
    for (const auto* tensors : {&parameters, &buffers}) {
      for (const at::Tensor& tensor : *tensors) {
        broadcast_from_rank_0(tensor, group_);
      }
    }
    for (Bucket& bucket : buckets_) {
      take_own_chunk(bucket);
      for (std::size_t m = 0; overlap_ && m < bucket.members.size(); ++m) {
        Member& member = bucket.members[m];
        member.hook = on_gradient_ready(
            member.parameter,
            [this, &bucket, &member](const at::Tensor&) { gradient_ready(bucket, member); });
      }
    }
  }

  void step() override {
    check_scope("step()");
    const at::NoGradGuard no_grad;
    reduce_all();
    for (Bucket& bucket : buckets_) {
      bucket.optimizer->step();
      bucket.shard.mutable_grad().reset();
      bucket.flat = bucket.new_flat(ranks_);
      bucket.work = all_gather_async(bucket.flat, bucket.shard.detach(), group_);
      if (!overlap_) {
        publish(bucket);
      }
    }
    for (std::size_t b = 0; overlap_ && b < buckets_.size(); ++b) {
      publish(buckets_[b]);
    }
    for (const Member& empty : without_elements_) {
      empty.parameter.mutable_grad().reset();
    }
    next_ = reduced_ = 0;
  }

  double clip_grad_norm(double max_norm) override {
    TORCH_CHECK(max_norm > 0, kWho, "max_norm should be positive, not ", max_norm);
    check_scope("clip_grad_norm()");
    const at::NoGradGuard no_grad;
    reduce_all();
    if (buckets_.empty()) {
      return 0;
    }
    at::Tensor squares = at::zeros({1}, buckets_[0].shard.options().dtype(at::kDouble));
    for (const Bucket& bucket : buckets_) {
      squares += bucket.shard.grad().to(at::kDouble).square().sum();
    }
    all_reduce(squares, group_);
    const double norm = std::sqrt(squares.item<double>());
    for (Bucket& bucket : buckets_) {
      bucket.shard.mutable_grad().mul_(std::min(1.0, max_norm / (norm + 1e-6)));
    }
    return norm;
  }

 private:
  void check_scope(const char* call) const {
    TORCH_CHECK(synchronizes(), kWho, call, " inside a NoSync scope, where nothing is reduced");
  }

  /// Gives the shard its values, from the parameters that all ranks have by now.
  void take_own_chunk(Bucket& bucket) {
    const at::Tensor flat = bucket.new_flat(ranks_).zero_();
    for (const Member& member : bucket.members) {
      member.place_in(flat).copy_(member.parameter);
    }
    bucket.shard.copy_(flat.chunk(ranks_)[group_->getRank()]);
  }

  void gradient_ready(Bucket& bucket, Member& member) {
    TORCH_CHECK(!member.ready, kWho,
                "backward ran twice without step() in between, and the gradient of parameter ",
                member.index, " may be in flight already; accumulate inside a NoSync scope");
    if (!synchronizes()) {
      return;  // the gradient keeps the sum until a step that sends it
    }
    member.ready = true;
    --bucket.missing;
    const at::NoGradGuard no_grad;
    while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
      launch_next();
    }
  }

  void check_kind(const Bucket& bucket, const Member& member, const at::Tensor& tensor) const {
    TORCH_CHECK(tensor.layout() == at::kStrided, kWho, "the gradient of parameter ", member.index,
                " is sparse; only dense gradients can be reduced");
    TORCH_CHECK(tensor.dtype() == bucket.shard.dtype() && tensor.device() == bucket.shard.device(),
                kWho, "parameter ", member.index, " is ", tensor.dtype(), " on ", tensor.device(),
                " now; make a new optimizer after moving a model");
  }

  /// To its place in the bucket; zeros stay where there is none.
  void move_gradient(Bucket& bucket, Member& member) {
    member.ready = true;
    check_kind(bucket, member, member.parameter);
    if (member.parameter.grad().defined()) {
      check_kind(bucket, member, member.parameter.grad());
      member.place_in(bucket.flat).copy_(member.parameter.grad());
      member.parameter.mutable_grad().reset();
    }
  }

  /// In plan order, which is the same on all ranks. From then on nobody may touch the flat tensor.
  void launch_next() {
    Bucket& bucket = buckets_[next_++];
    bucket.flat = bucket.new_flat(ranks_).zero_();
    for (Member& member : bucket.members) {
      move_gradient(bucket, member);
    }
    bucket.shard.mutable_grad() = at::empty_like(bucket.shard);
    bucket.work =
        reduce_scatter_async(bucket.shard.grad(), bucket.flat, group_, ReduceOp::kAverage);
  }

  /// When it returns, each shard has its gradient; a second time in a step it does nothing.
  void reduce_all() {
    while (next_ < buckets_.size()) {  // those that no hook has launched
      launch_next();
      if (!overlap_) {
        buckets_[reduced_++].arrive();
      }
    }
    while (reduced_ < buckets_.size()) {
      buckets_[reduced_++].arrive();
    }
  }

  /// Writes all ranks' shards into the parameters, once they are here.
  void publish(Bucket& bucket) {
    const at::Tensor flat = bucket.arrive();
    for (Member& member : bucket.members) {
      member.parameter.copy_(member.place_in(flat));
      member.ready = false;
    }
    bucket.missing = bucket.members.size();
  }

  ProcessGroupPtr group_;
  const int ranks_;
  const bool overlap_;
  std::vector<Bucket> buckets_;  // in plan order; hooks refer to its elements
  std::vector<Member> without_elements_;
  std::size_t next_ = 0;     // the first bucket not yet launched in this step
  std::size_t reduced_ = 0;  // how many shards have this step's gradient
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_sharded_optimizer(std::vector<at::Tensor> parameters,
                                                         std::vector<at::Tensor> buffers,
                                                         ProcessGroupPtr group,
                                                         OptimizerFactory make_optimizer,
                                                         const ShardedOptimizerOptions& options) {
  TORCH_CHECK(group, kWho, "the process group is null");
  TORCH_CHECK(make_optimizer, kWho, "the factory of optimizers is empty");
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), kWho, "buffer ", i, " is undefined");
  }
  return std::make_unique<Shards>(parameters, buffers, std::move(group), make_optimizer, options);
}

}  // namespace ddp
