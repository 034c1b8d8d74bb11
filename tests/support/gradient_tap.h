#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "ddp/libtorch_versions.h"

namespace ddp::testing {

/// While it lives, it sees each gradient just before autograd accumulates it, so before any hook of
/// the parameter.
class GradientTap {
 public:
  /// Of a parameter, by its place in the list, and what will be added to its gradient.
  using Function = std::function<void(std::size_t parameter, const at::Tensor& incoming)>;

  /// Parameters that require no gradient are passed over.
  GradientTap(const std::vector<at::Tensor>& parameters, Function function);

 private:
  std::shared_ptr<const Function> function_;
  // A parameter owns its accumulator only as long as a graph does.
  std::vector<OwnedNode> accumulators_;
};

}  // namespace ddp::testing
