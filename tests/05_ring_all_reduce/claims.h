#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "scenarios.h"

// What the ranks of a scenario said about its calls, call by call; and what must be true of that.

namespace ddp::testing {

/// One rank's part in a call, or in printing.
struct CallOfRank : RankSaid {
  CallOfRank(RankSaid said, int position);

  int position = 0;  // in the group
  GroupIndex group = 0;
  std::string what;  // empty: it prints
  Function function = Function::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  Values values = Values::kPlain;
  bool strided = false;
  Events events;  // between its begin and its end

  const at::Tensor& input() const { return tensor(kInput); }
  const at::Tensor& result() const { return tensor(kResult); }
  /// Of its events: those of a kind.
  Events of_kind(EventKind kind) const;
};

/// A call on all ranks of its group, in the group's order.
struct CallOfGroup {
  int step = 0;
  std::vector<CallOfRank> ranks;

  int size() const { return static_cast<int>(ranks.size()); }
  bool prints() const { return ranks[0].what.empty(); }
  Function function() const { return ranks[0].function; }
  bool is_average() const { return ranks[0].op == ReduceOp::kAverage; }
  bool strided() const { return std::ranges::any_of(ranks, &CallOfRank::strided); }
  Values values() const { return ranks[0].values; }
  at::ScalarType dtype() const { return ranks[0].input().scalar_type(); }
  std::int64_t elements() const { return ranks[0].input().numel(); }
};

/// Those that all ranks of the group have ended, in their order.
const std::vector<CallOfGroup>& calls_in(const Evidence& evidence);

/// What `check` finds in the first call of a function of the ring.
using CheckOfCall = std::function<Finding(const CallOfGroup& call)>;
Predicate in_each_call(const CheckOfCall& check);

/// What `check` finds on the first rank; the message says which.
using CheckOfRank = std::function<Finding(const CallOfGroup& call, const CallOfRank& rank)>;
Predicate on_each_rank(const CheckOfRank& check);
Finding on_each_rank(const CallOfGroup& call, const CheckOfRank& check);

// Claims: empty, or what is not true.

/// The sum or average, but for rounding; of the own chunk alone after a reduce-scatter.
Finding wrong_sum(const CallOfGroup& call);
/// Chunk r is rank r's, bit for bit.
Finding wrong_gather(const CallOfGroup& call);
/// All ranks have the same bits.
Finding differing_bits(const CallOfGroup& call);
/// As far from the exact result as N-1 additions and a division may be, and no further.
Finding too_much_rounding(const CallOfGroup& call);
/// The tensor keeps all but its elements, and what is not the tensor's keeps those, too.
Finding changed_tensor(const CallOfGroup& call);

/// Chunks, to the right neighbour and from the left one, and nothing else.
Finding wrong_messages(const CallOfGroup& call);
/// Ranks that have something to send do not.
Finding sends_nothing(const CallOfGroup& call);
/// Every message is waited for, once, and has ended when the call returns; nothing touches it before.
Finding touched_in_flight(const CallOfGroup& call);

/// One chunk, and two copies of a tensor that is not contiguous.
Finding uses_much_memory(const Evidence& evidence);

/// The time of the ring, on several networks.
Finding wrong_time(const Evidence& evidence);

/// A rank writes its line, and flushes it, when the one before it has; whatever the timing.
Finding wrong_printing(const Evidence& evidence);

/// Gradients averaged by the ring, for several models; the graded test that is charged with them.
std::vector<Scenario> training_scenarios_of_ring(const std::string& charged_to);
Predicate ring_trains();

/// The chunks of a call's tensor, in bytes.
std::vector<std::int64_t> chunk_bytes(const CallOfGroup& call);

}  // namespace ddp::testing
