#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace ddp {

/// What happened in a rank.
enum class EventKind : std::uint8_t {
  kLaunch,   // an operation was started; `operation` is its number in this rank
  kWait,     // `operation` is waited for
  kPoll,     // `operation` was asked whether it is complete (only the first times)
  kAwaited,  // the future of `operation` completes while the launching thread sleeps outside of the
             // network: so that is what it waits for
  kDone,     // `operation` is complete, and its result is in the caller's tensors
  kTouch,    // a tensor of `operation` was read or written in flight: `text`; -1: on purpose
  kBlocked,  // backward stood still until `operation` was complete: `text`
  kReady,    // backward has computed gradient `index`
  kCompute,  // `number` nanoseconds of computing: `text`
  kValue,    // a tensor was handed in, called `text`
  kFact,     // a number was handed in, called `text`
  kThrew,    // a call threw an exception: `text` is the call, `detail` the exception
  kPhase,    // the scenario went on to `place`
};

/// Which part of a training step a scenario is in, or whether it is in a call of the code under test.
enum class Phase : std::uint8_t {
  kSetup,
  kConstruction,
  kForward,
  kBackward,
  kFinish,
  kDestruction,
  kCall,
  kCanary,  // after the scenario: a buffer is touched on purpose, see World::touch_on_purpose
  kEnd
};

/// Where a scenario stands; the referee stamps it on every event.
struct Place {
  Phase phase = Phase::kSetup;
  bool no_sync = false;     // inside a NoSync scope
  std::int32_t step = -1;   // -1: before the first
  std::int32_t model = 0;   // which of the scenario's models, where it has several
  std::int32_t ready = -1;  // the last gradient that backward has computed in this phase
};

/// A group in a scenario's world: the one of all ranks is 0.
using GroupIndex = std::int16_t;

/// What is plain data of an event.
struct EventData {
  EventKind kind = EventKind::kPhase;
  bool home = true;         // on the thread that runs the scenario
  std::int32_t thread = 0;  // the kernel's id
  Place place;

  // Of an operation.
  c10d::OpType type = c10d::OpType::UNKNOWN;
  at::ScalarType dtype = at::kFloat;
  c10d::ReduceOp::RedOpType reduce_op = c10d::ReduceOp::UNUSED;
  GroupIndex group = 0;
  std::int32_t peer = -1;  // a root, or the other end of a message, as a rank of the group
  std::int32_t tag = 0;
  std::int32_t tensors = 0;
  std::int64_t operation = -1;
  std::int64_t caller = -1;  // of a launch: where in the stage's library, see caller_in_stage()
  std::int64_t elements = 0;
  std::int64_t bytes = 0;        // of the cost model, see Operation::payload_bytes()
  std::int64_t input_bytes = 0;  // sent to the referee
  std::int64_t output_bytes = 0;

  std::int64_t index = -1;
  std::int64_t number = 0;
  std::int64_t offset = 0;  // of its bytes in the rank's arena
};

/// One thing that happened in a rank. The bytes of its tensors stay in the rank's arena (Mailbox).
struct Event : EventData {
  std::vector<std::int64_t> sizes = {};  // of a value; `tensors` is 0 if it is undefined
  std::string shape = {};
  std::string text = {};
  std::string detail = {};
};

/// "all-reduce #3 of the gradient of fc1.weight (400 bytes)".
std::string describe_operation(const Event& launch);

/// The same with what the ranks have to agree on: reduction, root or partner, dtype and shape.
std::string describe_agreement(const Event& launch);

/// Replaces what an operation's tensor is called, if it is not called as the lab does: a rank may have put
/// into a name what it has read.
void withhold_names(Event& event);

/// Integers, bool, floating point and complex numbers: what ranks send and hand in. A tensor of another
/// dtype is more than its bytes: libtorch looks for a quantizer beside them.
bool is_plain(at::ScalarType dtype);

bool is_all_reduce(const Event& launch);
bool is_reduce_scatter(const Event& launch);
bool is_all_gather(const Event& launch);

}  // namespace ddp
