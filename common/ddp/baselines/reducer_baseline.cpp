#include "ddp/baselines/reducer_baseline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

namespace ddp {
namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // at once, as in PyTorch

std::vector<at::Tensor> without_duplicates(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> distinct;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
      distinct.push_back(parameter);
    }
  }
  return distinct;
}

void broadcast_from_rank_0(const std::vector<at::Tensor>& tensors, const ProcessGroupPtr& group) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor values = tensor.detach();
    const at::Tensor contiguous = values.contiguous();
    broadcast(contiguous, group);
    values.copy_(contiguous);
  }
}

using Buckets = std::vector<std::vector<std::size_t>>;

// Filled from the front and then reversed, as DistributedDataParallel does. Only the first step uses
// these buckets; the Reducer makes those of later steps itself.
Buckets first_buckets(const std::vector<at::Tensor>& trainable,
                      const std::vector<std::size_t>& limits) {
  Buckets buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(trainable, limits));
  std::ranges::reverse(buckets);
  return buckets;
}

// As the Reducer rebuilds them, where gradients come in the reverse order of the parameters.
Buckets buckets_by_readiness(std::vector<at::Tensor> trainable,
                             const std::vector<std::size_t>& limits) {
  std::vector<std::int64_t> indices(trainable.size());
  std::iota(indices.rbegin(), indices.rend(), 0);
  std::ranges::reverse(trainable);
  return std::get<0>(c10d::compute_bucket_assignment_by_size(
      trainable, limits, /*expect_sparse_gradient=*/{}, indices));
}

std::unique_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& trainable,
                                            const ProcessGroupPtr& group,
                                            const ReducerBaselineOptions& options) {
  const std::vector<bool> sparse(trainable.size(), false);
  const std::vector<std::size_t> limits = {static_cast<std::size_t>(options.first_bucket_bytes),
                                           static_cast<std::size_t>(options.cap_bytes)};
  auto buckets = options.rebuilt_from_the_start ? buckets_by_readiness(trainable, limits)
                                                : first_buckets(trainable, limits);
  return std::make_unique<c10d::Reducer>(
      trainable, std::move(buckets), group, sparse, options.cap_bytes,
      /*find_unused_parameters=*/false, options.gradient_as_bucket_view,
      std::unordered_map<std::size_t, std::string>{}, options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>{});
}

}  // namespace

ReducerBaseline::ReducerBaseline(const std::vector<at::Tensor>& parameters,
                                 const std::vector<at::Tensor>& buffers,
                                 const ProcessGroupPtr& group,
                                 const ReducerBaselineOptions& options)
    : parameters_(parameters),
      buffers_(options.broadcast_buffers ? buffers : std::vector<at::Tensor>()),
      group_(group),
      keeps_buckets_(options.rebuilt_from_the_start) {
  std::vector<at::Tensor> distinct = without_duplicates(parameters);
  broadcast_from_rank_0(distinct, group);
  broadcast_from_rank_0(buffers, group);
  std::erase_if(distinct, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  reducer_ = make_reducer(distinct, group, options);
}

ReducerBaseline::~ReducerBaseline() = default;

void ReducerBaseline::before_forward() {
  if (!keeps_buckets_) {
    reducer_->rebuild_buckets();
  }
  reducer_->prepare_for_forward();
  if (!buffers_.empty()) {
    c10d::broadcast_coalesced(group_, buffers_, kBroadcastBytes);
  }
}

// No outputs: the Reducer then assumes that all parameters are used, and waits for their gradients.
void ReducerBaseline::before_backward() { reducer_->prepare_for_backward({}); }

std::vector<std::vector<std::size_t>> ReducerBaseline::buckets() const {
  std::vector<std::vector<std::size_t>> buckets;
  for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    std::vector<std::size_t>& indices = buckets.emplace_back();
    for (const at::Tensor& member : bucket.getParameters()) {
      const auto found = std::ranges::find_if(
          parameters_, [&](const at::Tensor& parameter) { return parameter.is_same(member); });
      indices.push_back(found - parameters_.begin());
    }
  }
  return buckets;
}

}  // namespace ddp
