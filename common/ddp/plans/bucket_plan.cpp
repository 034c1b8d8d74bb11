#include "ddp/plans/bucket_plan.h"

#include <algorithm>
#include <set>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace ddp {

std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<at::Tensor>& parameters,
                                                   std::int64_t cap_bytes) {
  TORCH_CHECK(cap_bytes > 0, "a bucket needs a cap of at least one byte, not ", cap_bytes);
  TORCH_CHECK(!parameters.empty(), "the list of parameters is empty");
  std::vector<std::int64_t> trainable;
  std::set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined(), "parameter ", i, " is undefined");
    TORCH_CHECK(parameters[i].is_leaf(), "parameter ", i,
                " is not a leaf of the autograd graph, so backward leaves no gradient in it");
    if (parameters[i].requires_grad() && seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
      trainable.push_back(static_cast<std::int64_t>(i));
    }
  }
  if (trainable.empty()) {
    return {};
  }
  std::reverse(trainable.begin(), trainable.end());
  std::vector<at::Tensor> reversed;
  for (const std::int64_t index : trainable) {
    reversed.push_back(parameters[index]);
  }
  auto plan = std::get<0>(c10d::compute_bucket_assignment_by_size(
      reversed, {static_cast<std::size_t>(cap_bytes)}, {}, trainable));
  std::sort(plan.begin(), plan.end(),
            [](const auto& a, const auto& b) { return a.back() > b.back(); });
  return plan;
}

}  // namespace ddp
