#include "ddp/backends/limited_link.h"

#include <chrono>
#include <thread>
#include <utility>

namespace ddp {

LimitedLink::LimitedLink(BackendPtr inner, const NetworkModel& network)
    : BackendDecorator(std::move(inner)), network_(network) {}

WorkPtr LimitedLink::run(Operation operation) {
  const std::chrono::nanoseconds cost(
      cost_ns(network_, operation.type, operation.payload_bytes(), getSize()));
  return queues_.submit(std::move(operation), [this, cost](Operation& operation) {
    const auto end = std::chrono::steady_clock::now() + cost;
    operation.start(inner(), operation)->wait();
    std::this_thread::sleep_until(end);
  });
}

}  // namespace ddp
