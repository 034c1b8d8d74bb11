#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "ddp/backend_decorator.h"
#include "ddp/blackboard.h"
#include "ddp/network_model.h"
#include "ddp/timeline.h"
#include "ddp/virtual_clock.h"

namespace ddp {

/// From when to when an operation uses the network, in virtual nanoseconds.
struct VirtualInterval {
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// When the operations of a group end, in virtual nanoseconds, computed from what the ranks
/// published at their launches. Every rank computes the same numbers from the same records,
/// whatever the real timing was.
///
/// Collectives share the network: number k starts when all ranks have launched it and number k-1
/// has ended. A message starts when both ends have launched it and both ports it needs (the
/// sender's way out, the receiver's way in) have finished what was given to them before. Messages
/// and collectives do not slow each other down.
class VirtualTimeline {
 public:
  VirtualTimeline(Blackboard& board, int collectives, int messages, const NetworkModel& network);

  /// The time of the group's collective `index`; waits until all ranks have launched it.
  VirtualInterval collective_time(std::int64_t index);

  /// The time of message `index` of `rank`'s list; waits until the other end is there.
  VirtualInterval message_time(int rank, std::int64_t index);

 private:
  struct Messages {                              // of one rank, as far as they have been looked at
    std::vector<std::int64_t> previous_on_port;  // -1: the first
    std::vector<std::int64_t> ordinal;           // among those of the same kind, peer and tag
    std::vector<VirtualInterval> time;           // end negative: not computed yet
    std::map<std::tuple<int, int, int>, std::vector<std::int64_t>> by_partner;  // kind, peer, tag
    std::map<int, std::int64_t> last_on_port;                                   // by kind
  };
  void read_message(int rank, std::int64_t index);
  std::int64_t partner_of(int rank, std::int64_t index);
  std::int64_t previous_on_port(int rank, std::int64_t index);

  Blackboard& board_;
  const int collectives_;
  const int messages_channel_;
  const NetworkModel network_;
  std::vector<VirtualInterval> collective_times_;
  std::vector<Messages> messages_;
};

/// A network with virtual time. Data really moves, through the inner backend; the clock of each
/// rank moves only when the rank computes (simulated_compute), launches (o), or waits for an
/// operation's end:
///
///     start = max(the launch times of all ranks, the end of the operation before it)
///     end   = start + cost_ns(...)
///     Work::wait() moves the caller's clock to the end
///
/// Times are integers and the same in every run. step_end() counts every operation launched, so
/// what waits by a future, which nobody can see, gains nothing.
class SimulatedNetwork : public BackendDecorator {
 public:
  SimulatedNetwork(BackendPtr inner, std::shared_ptr<VirtualClock> clock,
                   const NetworkModel& network, Blackboard& board);

  WorkPtr run(Operation operation) override;

  const NetworkModel& network() const { return network_; }
  VirtualClock& clock() { return *clock_; }

  /// From now on what is launched is drawn: the launch overhead at once, the operation itself when
  /// step_end() or start_step() finds out its time.
  void draw_on(std::shared_ptr<Timeline> timeline) { drawing_ = std::move(timeline); }

  /// Sets the clocks of all ranks to the latest of them, when everything launched before has ended,
  /// and returns that time. A collective call, which costs no time.
  std::int64_t start_step();

  /// The end of this rank's step: its clock, or the end of the last operation it launched,
  /// whichever is later.
  std::int64_t step_end();

 private:
  friend class SimulatedWork;
  struct Launched {
    bool message;
    std::int64_t index;
    Timeline::Launched drawn;
  };
  VirtualInterval time_of(const Launched& operation);

  std::shared_ptr<VirtualClock> clock_;
  const NetworkModel network_;
  Blackboard& board_;
  const int collectives_;  // channels of the blackboard
  const int messages_;
  const int steps_;
  std::mutex mutex_;  // of what follows: works may be waited for on any thread
  VirtualTimeline timeline_;
  std::vector<Launched> launched_;  // since the last start_step()
  std::shared_ptr<Timeline> drawing_;
};

}  // namespace ddp
