#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ddp/backends/backend_decorator.h"
#include "ddp/network_model.h"
#include "ddp/simulation/timeline.h"
#include "ddp/simulation/virtual_clock.h"
#include "ddp/simulation/virtual_schedule.h"

namespace ddp {

/// A network with virtual time. Data really moves, through the inner backend; a rank's clock
/// advances only when the rank computes (simulated_compute), launches (o), or waits for an
/// operation to end:
///
///     start = max(the launch times of all ranks, the end of the operation before it)
///     end   = start + cost_ns(...)
///     Work::wait() moves the caller's clock to the end
///
/// Times are integers and the same in every run. step_end() counts every operation launched, so
/// waiting by a future, which cannot be observed, gains nothing.
class SimulatedNetwork : public BackendDecorator {
 public:
  SimulatedNetwork(BackendPtr inner, std::shared_ptr<VirtualClock> clock,
                   const NetworkModel& network, Blackboard& board);

  WorkPtr run(Operation operation) override;

  const NetworkModel& network() const { return network_; }
  VirtualClock& clock() { return *clock_; }

  /// Draws all operations launched from now on: the launch overhead at once, the operation itself
  /// when step_end() or start_step() computes its time.
  void draw_on(std::shared_ptr<Timeline> timeline) { timeline_ = std::move(timeline); }

  /// Sets the clocks of all ranks to the latest step_end() among them, and returns that time.
  /// Collective, but takes no virtual time.
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
  std::mutex mutex_;  // of the members below: any thread may wait for a work
  VirtualSchedule schedule_;
  std::vector<Launched> launched_;  // since the last start_step()
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace ddp
