#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "ddp/network_model.h"
#include "ddp/referee/evidence.h"
#include "ddp/timeline/timeline.h"
#include "ddp/virtual_time/message_times.h"

namespace ddp {

/// What an event costs the rank that it happened in, in nanoseconds of computing.
using ComputeCost = std::function<std::int64_t(const Seen& seen, int rank)>;

/// How long each step of a run would have taken on a network. The evidence of one run can be priced
/// for any number of networks: times are no part of it, but follow from the order in which each
/// rank did things.
///
/// Each rank has a clock, which events move by their cost, and launches by the network's overhead.
/// A collective begins when all its members have launched it and the one before it in its group is
/// done, and lasts cost_ns(); for messages see MessageTimes. A wait on the thread that runs the
/// scenario, by the handle or by the future of a collective, moves the rank's clock to the operation's
/// end; waits of other threads do not, nor do callbacks and polls. A step begins on all ranks when
/// the last of them, and all communication of the step before, is done.
///
/// Another thread that sends or receives has a clock of its own, which begins with the step and is
/// moved by its launches and by its waits for messages.
class VirtualTime {
 public:
  struct Step {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  VirtualTime(const Evidence& evidence, const NetworkModel& network, const ComputeCost& cost);

  /// From the beginning of a step to the end of its finish() and of all that it launched, on the
  /// slowest rank.
  const Step& step(int number) const { return steps_.at(number); }
  bool has_step(int number) const { return steps_.contains(number); }
  std::int64_t step_ns(int number) const { return step(number).end - step(number).begin; }

  /// What a rank did when, to be drawn.
  const std::vector<Span>& spans(int rank) const { return ranks_.at(rank).spans; }

  /// When a rank's event happened, by its place in the evidence; one that nothing led to, at the rank's end.
  std::int64_t time_of(int rank, std::size_t event) const {
    const Rank& own = ranks_.at(rank);
    return event < own.times.size() ? own.times[event] : own.clock;
  }

 private:
  struct Operation {
    std::int64_t launched = 0;                   // by the last member
    std::vector<std::pair<int, Span>> launches;  // by rank
    std::int64_t bytes = 0;
    std::int64_t end = -1;  // unknown
    int step = -1;
  };
  struct Group {
    std::size_t size = 0;
    std::vector<Operation> operations;
  };
  // One that does not run the scenario.
  struct Thread {
    int step = -1;
    std::int64_t clock = 0;
    std::vector<const MessageTime*> awaited;
  };
  struct Rank {
    std::size_t next = 0;  // event
    std::int64_t clock = 0;
    int step = -1;
    std::int64_t awaited = -1;             // the operation that its scenario's thread waits for
    bool at_step = false;                  // waits for the others at the beginning of its step
    std::vector<std::size_t> launched_in;  // how many collectives, by group
    std::map<std::int64_t, std::pair<GroupIndex, std::size_t>> operations;
    Span part;  // the phase that it is in, if that one is drawn
    std::map<std::int64_t, const MessageTime*> messages;
    std::map<int, Thread> threads;
    std::vector<Span> spans;
    std::vector<std::int64_t> times;  // by event
  };

  bool advance(int rank);
  void happen(Rank& rank, const Seen& seen, int number);
  void wait(Rank& rank, const Seen& seen);
  bool end_wait(Rank& rank);
  void enter(Rank& rank, Phase phase);
  void launch(Rank& rank, const Seen& seen, int number);
  void launch_message(Rank& rank, const Seen& seen, int number);
  bool take_times(const std::vector<const MessageTime*>& settled);
  Thread& thread_of(Rank& rank, const Seen& seen);
  bool begin_step();

  const Evidence& evidence_;
  const NetworkModel network_;
  const ComputeCost& cost_;
  std::vector<Rank> ranks_;
  std::vector<Group> groups_;
  MessageTimes messages_;
  std::map<int, Step> steps_;
};

}  // namespace ddp
