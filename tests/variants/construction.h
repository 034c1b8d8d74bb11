#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ddp/collectives.h"

namespace ddp {

/// The errors of assign_buckets().
inline void check_parameters(const std::vector<at::Tensor>& parameters, std::int64_t cap_bytes) {
  TORCH_CHECK(cap_bytes > 0 && !parameters.empty(), "needs a positive cap and parameters");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined() && parameters[i].is_leaf(), "parameter #", i,
                " is undefined, or no leaf");
  }
}

/// The errors of the synchronizers' contracts at construction, before any communication. With
/// `uniform`, also those of stage 01's flat form.
inline void check_arguments(const std::vector<at::Tensor>& parameters,
                            const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group,
                            bool uniform = false, std::int64_t cap_bytes = 1) {
  TORCH_CHECK(group, "needs a group");
  check_parameters(parameters, cap_bytes);
  at::Tensor first;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].requires_grad()) {
      first = first.defined() ? first : parameters[i];
      TORCH_CHECK(!uniform || (parameters[i].scalar_type() == first.scalar_type() &&
                               parameters[i].device() == first.device()),
                  "parameter #", i, " has another dtype, or is on another device");
    }
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), "buffer #", i, " is undefined");
  }
}

/// Throws if the gradient of one of `parameters`, which are in the caller's list `all`, is sparse.
inline void check_gradients(const std::vector<at::Tensor>& parameters,
                            const std::vector<at::Tensor>& all) {
  for (const at::Tensor& parameter : parameters) {
    std::size_t index = 0;
    while (!all[index].is_same(parameter)) {
      ++index;
    }
    TORCH_CHECK(!parameter.grad().defined() || parameter.grad().layout() == at::kStrided,
                "the gradient of parameter #", index, " is sparse");
  }
}

/// What the contracts ask for at construction, in the plainest way.
inline void take_from_rank_0(const std::vector<at::Tensor>& tensors, const ProcessGroupPtr& group) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor values = tensor.detach().contiguous();
    broadcast(values, group);
    tensor.detach().copy_(values);
  }
}

}  // namespace ddp
