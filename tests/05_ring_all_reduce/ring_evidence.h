#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ring_calls.h"
#include "support/body.h"

// What the ranks of a body said about its calls, call by call.

namespace ddp::testing {

/// One rank's part in a call, or in printing.
struct CallOfRank {
  int rank = 0;      // in the world
  int position = 0;  // in the group
  GroupIndex group = 0;
  std::string what;  // empty: it prints
  Function function = Function::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  Values values = Values::kPlain;
  bool strided = false;
  /// All that happened between its begin and its end.
  std::vector<const Seen*> events;
  std::map<std::string, std::int64_t> facts;
  std::map<std::string, at::Tensor> value;
  bool ended = false;

  const at::Tensor& input() const { return value.at("input"); }
  const at::Tensor& result() const { return value.at("result"); }
  /// Of its events: those of a kind.
  std::vector<const Seen*> of_kind(EventKind kind) const;
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
using CheckOfCall = std::function<std::string(const CallOfGroup& call)>;
Predicate in_each_call(const CheckOfCall& check);

/// What `check` finds on the first rank; the message says which.
using CheckOfRank = std::function<std::string(const CallOfGroup& call, const CallOfRank& rank)>;
Predicate on_each_rank(const CheckOfRank& check);
std::string on_each_rank(const CallOfGroup& call, const CheckOfRank& check);

}  // namespace ddp::testing
