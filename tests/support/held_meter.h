#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ddp/meters/memory_meter.h"
#include "ddp/referee/client.h"

namespace ddp::testing {

/// What a rank holds that a synchronizer could collect: operations, gradients, memory, threads.
class HeldMeter {
 public:
  explicit HeldMeter(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {}

  /// Hands in facts "held: <what>". Three times in a body, for nothing_grows().
  void count(Client& client) const;

 private:
  const std::vector<at::Tensor> parameters_;
  const MemoryMeter meter_;
};

}  // namespace ddp::testing
