#pragma once

#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "ddp/referee/client.h"
#include "support/body.h"

namespace ddp::testing {

/// While it lives, a call runs that leaves as it was what a thread or a process has once:
/// autograd's mode, the default dtype, the number of threads, the state of random numbers, and
/// arithmetic's modes, of which determinism is one. What has changed in the end is evidence, for
/// surroundings_are_left_alone(); what a test would stumble over is set back.
class KeptSurroundings {
 public:
  KeptSurroundings(Client& client, std::string call);
  KeptSurroundings(const KeptSurroundings&) = delete;
  KeptSurroundings& operator=(const KeptSurroundings&) = delete;
  ~KeptSurroundings();

 private:
  struct State {
    bool autograd;
    at::ScalarType default_dtype;
    int threads;
    std::uint64_t random;
    int rounding;
    bool flushes_subnormals;
    bool deterministic, warns_only;  // algorithms: whether, and whether others warn or throw
  };

  static State now();

  Client& client_;
  const std::string call_;
  const State before_ = now();
};

/// Has this process calculate as few do, with more than one thread, so that setting a mode back is
/// not switching it off.
void choose_rare_modes();

/// No call has changed what is not its own.
std::string surroundings_are_left_alone(const Evidence& evidence);

}  // namespace ddp::testing
