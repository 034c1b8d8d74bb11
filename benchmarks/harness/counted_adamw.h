#pragma once

#include <torch/optim/adamw.h>

#include <memory>
#include <utility>
#include <vector>

#include "ddp/cluster/meta_memory.h"

namespace ddp {

/// AdamW that tells a MetaMemory what it makes.
class CountedAdamW : public torch::optim::AdamW {
 public:
  using AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override {
    const cluster::MemoryScope scope(cluster::MemoryKind::kOptimizer, "update");
    return AdamW::step(std::move(closure));
  }
};

inline std::unique_ptr<torch::optim::Optimizer> counted_adamw(std::vector<at::Tensor> parameters) {
  return std::make_unique<CountedAdamW>(std::move(parameters));
}

}  // namespace ddp
