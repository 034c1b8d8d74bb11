#include "ddp/simulation/simulated_network.h"

#include <algorithm>

namespace ddp {

// A wait, or a poll that returns true, advances the caller's clock to the end of the operation.
class SimulatedWork : public WorkDecorator {
 public:
  SimulatedWork(WorkPtr inner, c10::intrusive_ptr<SimulatedNetwork> network,
                SimulatedNetwork::Launched operation)
      : WorkDecorator(std::move(inner)), network_(std::move(network)), operation_(operation) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner().wait(timeout);
    network_->clock().advance_to(network_->time_of(operation_).end);
    return done;
  }

  bool isCompleted() override {
    const bool done = inner().isCompleted();
    if (done && inner().isSuccess()) {
      network_->clock().advance_to(network_->time_of(operation_).end);
    }
    return done;
  }

 private:
  c10::intrusive_ptr<SimulatedNetwork> network_;
  SimulatedNetwork::Launched operation_;
};

SimulatedNetwork::SimulatedNetwork(BackendPtr inner, std::shared_ptr<VirtualClock> clock,
                                   const NetworkModel& network, Blackboard& board)
    : BackendDecorator(std::move(inner)),
      clock_(std::move(clock)),
      network_(network),
      board_(board),
      collectives_(board.open_channel(rank_)),
      messages_(board.open_channel(rank_)),
      steps_(board.open_channel(rank_)),
      schedule_(board, collectives_, messages_, network) {}

WorkPtr SimulatedNetwork::run(Operation operation) {
  clock_->compute(network_.launch_overhead_ns, "launch");
  OperationRecord record;
  record.op = static_cast<std::uint8_t>(operation.type);
  record.peer = operation.peer;
  record.tag = operation.tag;
  record.bytes = operation.payload_bytes();
  record.time_ns = clock_->now();

  const bool message = operation.is_message();
  const Launched launched{message,
                          board_.publish(message ? messages_ : collectives_, rank_, record),
                          timeline_ ? timeline_->launch(operation, record.time_ns) : 0};
  {
    const std::lock_guard lock(mutex_);
    launched_.push_back(launched);
  }
  return c10::make_intrusive<SimulatedWork>(
      operation.start(inner(), operation),
      c10::intrusive_ptr<SimulatedNetwork>::unsafe_reclaim_from_nonowning(this), launched);
}

VirtualInterval SimulatedNetwork::time_of(const Launched& operation) {
  const std::lock_guard lock(mutex_);
  return operation.message ? schedule_.message_time(rank_, operation.index)
                           : schedule_.collective_time(operation.index);
}

std::int64_t SimulatedNetwork::step_end() {
  std::vector<Launched> launched;
  {
    const std::lock_guard lock(mutex_);
    launched = launched_;
  }
  std::int64_t end = clock_->now();
  for (const Launched& operation : launched) {
    const VirtualInterval time = time_of(operation);
    end = std::max(end, time.end);
    if (timeline_) {
      timeline_->complete(operation.drawn, time.start, time.end);
    }
  }
  return end;
}

std::int64_t SimulatedNetwork::start_step() {
  OperationRecord arrival;
  arrival.time_ns = step_end();
  const std::int64_t index = board_.publish(steps_, rank_, arrival);
  std::int64_t start = 0;
  for (int rank = 0; rank < size_; ++rank) {
    start = std::max(start, board_.wait_for(steps_, rank, index).time_ns);
  }
  clock_->advance_to(start);
  const std::lock_guard lock(mutex_);
  launched_.clear();
  return start;
}

}  // namespace ddp
