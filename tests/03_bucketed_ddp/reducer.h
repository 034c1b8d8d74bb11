#pragma once

#include <vector>

#include "ddp/gradient_synchronizer.h"
#include "ddp/peers/reducer_peer.h"

namespace ddp::testing {

/// c10d::Reducer as a synchronizer: it waits at the end of backward.
class ReducerAsSynchronizer : public GradientSynchronizer {
 public:
  ReducerAsSynchronizer(const std::vector<at::Tensor>& parameters, const ProcessGroupPtr& group,
                        std::int64_t cap)
      : peer_(parameters, {}, group, {.first_bucket_bytes = cap, .cap_bytes = cap}) {
    prepare();
  }
  void finish() override { prepare(); }

 private:
  void prepare() {
    peer_.before_forward();
    peer_.before_backward();
  }

  ReducerPeer peer_;
};

}  // namespace ddp::testing
