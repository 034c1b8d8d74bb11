#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddp/meters/memory_meter.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "grader/evidence_view.h"
#include "grader/finding.h"

// Calls of a stage's code, within a scenario: what they throw, leave changed, and hold on to.

namespace ddp::testing {

/// Calls `call`, which must be refused; hands in whether it threw: the type and the text of its
/// exception. That of a stub goes on.
void attempt(Client& client, const std::string& what, const std::function<void()>& call);

/// Tells that a call begins that may throw.
constexpr FactKey kAttempt{"attempt"};

/// Begins what "threw" if a call needed communication that failed.
inline const std::string kMustFail = "must fail: ";

/// Calls `call`, which has to fail as its communication does, and not to wait forever: "a step that
/// rank 1 takes no part in".
void expect_failure(Client& client, const std::string& what, const std::function<void()>& call);

/// The same where World::failure is what fails. Whoever does without that operation may succeed.
void expect_lost_connection(Client& client, const std::string& what,
                            const std::function<void()>& call);

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

/// Sets modes other than the defaults, and more than one thread, so that restoring them differs from
/// resetting them.
void choose_unusual_modes();

/// No call has changed what is not its own.
Finding surroundings_are_left_alone(const Evidence& evidence);

/// Begins the facts of what is counted, for growth_in_steps().
constexpr const char* kHeld = "held: ";

/// What a rank holds that a synchronizer could collect: operations, gradients, memory, threads.
class HeldMeter {
 public:
  explicit HeldMeter(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {}

  /// Hands in facts "held: <what>". Three times in a scenario, for nothing_grows().
  void count(Client& client) const;

 private:
  const std::vector<at::Tensor> parameters_;
  const MemoryMeter meter_;
};

}  // namespace ddp::testing
