#include <algorithm>

#include "claims.h"
#include "ddp/virtual_time/virtual_time.h"

// How long a call takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

// The sizes of every rank's sends, in bytes: [rank][step].
using Messages = std::vector<std::vector<std::int64_t>>;

Messages messages_of(const CallOfGroup& call) {
  Messages messages;
  for (const CallOfRank& rank : call.ranks) {
    auto& sent = messages.emplace_back();
    for (const Seen* launch : rank.of_kind(EventKind::kLaunch)) {
      if (launch->type == c10d::OpType::SEND) {
        sent.push_back(launch->bytes);
      }
    }
  }
  return messages;
}

std::int64_t time_of(const NetworkModel& network, std::int64_t bytes) {
  return cost_ns(network, c10d::OpType::SEND, bytes, 2);
}

// The messages of the previous step for which a message from r to r + 1 has to wait.
enum class Waits {
  kForPorts,  // r to r + 1: the least that is possible
  kForAll,    // also r - 1 to r, whose data r passes on, and r + 1 to r + 2: ranks that wait for
              // both of their messages before the next step
};

// The end of the last message.
std::int64_t critical_path(const NetworkModel& network, const Messages& messages, Waits waits) {
  const std::size_t size = messages.size();
  std::vector<std::int64_t> ends(size, 0);
  for (std::size_t step = 0; step < messages[0].size(); ++step) {
    const std::vector<std::int64_t> before = ends;
    for (std::size_t r = 0; r < size; ++r) {
      const std::int64_t start =
          waits == Waits::kForPorts
              ? before[r]
              : std::max({before[(r + size - 1) % size], before[r], before[(r + 1) % size]});
      ends[r] = start + time_of(network, messages[r][step]);
    }
  }
  return *std::ranges::max_element(ends);
}

std::string why(std::int64_t took, std::int64_t longest) {
  return took > longest
             ? " (longer: in each step a rank should send and receive at the same time, so that "
               "both ways of its port are busy. One that sends first and receives then, or "
               "receives first, as in \"even ranks send, odd ranks receive\", takes up to twice as "
               "long. Or a message waits for another than the one that it needs)"
             : " (shorter: fewer messages, or fewer bytes)";
}

// `expected`: of ranks that have the same to send.
std::int64_t expected_of(const CallOfGroup& call, const NetworkModel& network) {
  const bool two_phases = call.function() == Function::kAllReduce;
  const std::int64_t steps = (two_phases ? 2 : 1) * (call.size() - 1);
  return steps * time_of(network, chunk_bytes(call)[0]);
}

Finding wrong_time_of(const CallOfGroup& call, std::int64_t took, const NetworkModel& network) {
  const Messages messages = messages_of(call);
  const std::string what = std::to_string(call.size()) + " ranks, " + call.ranks[0].what + ": ";
  if (call.elements() % call.size() == 0) {
    const std::int64_t expected = expected_of(call, network);
    return took == expected
               ? ""
               : what + std::string(call.function() == Function::kAllReduce ? "2" : "") +
                     "(N-1) (alpha + S/N beta) is " + duration(expected) +
                     " for S = " + std::to_string(call.ranks[0].input().nbytes()) +
                     " bytes, but the call took " + duration(took) + " of simulated time" +
                     why(took, expected);
  }
  const std::int64_t shortest = critical_path(network, messages, Waits::kForPorts);
  const std::int64_t longest = critical_path(network, messages, Waits::kForAll);
  return shortest <= took && took <= longest
             ? ""
             : what + "the call took " + duration(took) +
                   " of simulated time; the critical path of its messages, with unequal "
                   "chunks, takes " +
                   (shortest == longest ? "" : duration(shortest) + " to ") + duration(longest) +
                   why(took, longest);
}

// For a picture: one message after another.
Finding::Times times_of(const CallOfGroup& call, const NetworkModel& network,
                        const ComputeCost& cost) {
  const std::int64_t expected = expected_of(call, network);
  const std::int64_t bytes = chunk_bytes(call)[0], each = time_of(network, bytes);
  std::vector<Span> chain;
  for (std::int64_t begin = 0; begin < expected; begin += each) {
    chain.push_back({.kind = SpanKind::kCommunication,
                     .name = "a chunk",
                     .begin_ns = begin,
                     .end_ns = begin + each,
                     .launched_ns = begin,
                     .bytes = bytes});
  }
  return {call.step, expected, network, cost, chain};
}

// With a message of each chunk: empty ones may be skipped.
bool is_timed(const CallOfGroup& call) { return !call.prints() && call.elements() >= call.size(); }

}  // namespace

Finding wrong_time(const Evidence& evidence) {
  const ComputeCost nothing = [](const Seen&, int) { return 0; };
  Finding found;
  for (const NetworkModel& network : {NetworkModel{.alpha_ns = 10'000, .beta_ns_per_byte = 0.25},
                                      NetworkModel{.alpha_ns = 0, .beta_ns_per_byte = 3.0}}) {
    const VirtualTime time(evidence, network, nothing);
    for (const CallOfGroup& call : calls_in(evidence)) {
      if (!call.prints() && !wrong_messages(call).empty()) {
        break;  // another test's to judge; later times may hang on it
      }
      if (!is_timed(call)) {
        continue;
      }
      found = wrong_time_of(call, time.step_ns(call.step), network);
      if (call.elements() % call.size() == 0) {
        found.times = times_of(call, network, nothing);
      }
      if (!found.empty()) {
        return found;
      }
    }
  }
  return found;
}

}  // namespace ddp::testing
