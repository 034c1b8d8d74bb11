#pragma once

#include <cstdint>
#include <vector>

#include "ddp/cluster/timed_model.h"

// The small model that tests of the simulated cluster train.

namespace ddp::cluster {

inline constexpr Link kLink{.alpha_ns = 100, .beta_ns_per_byte = 0.5};
inline constexpr std::int64_t kLayers = 5, kElements = 200, kBytes = 4 * kElements;
inline constexpr std::int64_t kForward = 1'000, kBackward = 3'000;  // of a layer
inline const auto kMeta = at::TensorOptions(at::kMeta).dtype(at::kFloat);

inline std::vector<TimedLayer> layers() {
  std::vector<TimedLayer> all;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    all.push_back({.parameters = {make_parameter({kElements})},
                   .forward_ns = kForward,
                   .backward_ns = kBackward});
  }
  return all;
}

// Of an all-reduce between two ranks.
inline std::int64_t cost_of(std::int64_t bytes) { return 2 * 100 + bytes / 2; }

}  // namespace ddp::cluster
