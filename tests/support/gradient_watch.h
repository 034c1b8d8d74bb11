#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/ranks.h"

namespace ddp::testing {

/// One gradient of one backward, as observed when it became ready.
struct ReadyGradient {
  std::size_t parameter;  // index in the watched list
  std::int64_t position;  // in the recorder's order of launches and waits
  std::int64_t time_ns;   // the rank's virtual clock
};

/// Records when autograd starts to accumulate each gradient, without using the hook of
/// on_gradient_ready(): the moment just before a hook of the parameter could be called. What a hook
/// of gradient i launches is therefore found between position i and position i + 1.
class GradientWatch {
 public:
  /// The parameters must be distinct leaves that require a gradient.
  GradientWatch(Rank& rank, const std::vector<NamedTensor>& parameters);
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;
  ~GradientWatch();

  /// All since the start or the last clear(), in order.
  const std::vector<ReadyGradient>& ready() const;
  void clear();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp::testing
