#pragma once

#include "ddp/backends/operation_backend.h"
#include "ddp/backends/worker_queue.h"
#include "ddp/network_model.h"

namespace ddp {

/// A slow network in real time, for measurements on one machine, whose own link is too fast to be
/// worth hiding: an operation completes once the inner backend has done it and cost_ns() has passed
/// since it could start. A thread sleeps for the difference, which leaves the cores free for
/// computing, as with a real network.
///
/// Collectives share one link and run one after the other. Messages have a link for each pair of
/// ranks, direction and tag. CPU tensors only.
class LimitedLink : public BackendDecorator {
 public:
  LimitedLink(BackendPtr inner, const NetworkModel& network);

  WorkPtr run(Operation operation) override;

 private:
  const NetworkModel network_;
  OperationQueues queues_;  // last: destroyed first, which ends the threads
};

}  // namespace ddp
