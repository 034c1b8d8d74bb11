#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp/backends/backend_decorator.h"
#include "ddp/cluster/clocks.h"
#include "ddp/cluster/cluster_options.h"
#include "ddp/cluster/messages.h"
#include "ddp/cluster/operators.h"
#include "ddp/simulation/timeline.h"

namespace ddp::cluster {

/// The rank of a cluster that runs in this process, as its process group's backend: its clocks, and
/// what happened on them. It moves no data.
class ClusterBackend : public OperationBackend {
 public:
  explicit ClusterBackend(const ClusterOptions& options);

  const std::string getBackendName() const override { return "simulated cluster"; }
  WorkPtr run(Operation operation) override;

  /// All clocks begin anew.
  void begin_step();

  /// An operator runs on the compute stream. One that touches what a collective has in flight begins
  /// after it: whoever does that has waited for the collective, by a handle, or by its future, whose
  /// waits nobody sees.
  void compute(const DataMovement& movement);
  /// The same for computing that is only simulated, called `name` in drawings.
  void compute(std::int64_t ns, const std::string& name);

  /// For the handles of operations: this rank waits for the end of one.
  void wait_until(std::int64_t end);
  void wait_for(const Operation& operation, const MessageEndPtr& end);
  /// The host asks again and again until a collective has ended.
  void poll_until(std::int64_t end);

  const Clocks& clocks() const { return clocks_; }
  /// What ran on the compute stream, and the communication; a message once it is waited for.
  const std::vector<Span>& spans() const { return spans_; }

 private:
  // What a collective uses until somebody has waited for it.
  struct InFlight {
    at::Tensor tensor;
    std::int64_t end_ns;
  };

  WorkPtr run_collective(const Operation& operation);
  WorkPtr run_message(const Operation& operation);
  void draw(const Operation& operation, std::int64_t launched, const Interval& time);

  const ClusterOptions options_;
  Clocks clocks_;
  Messages messages_;
  std::vector<InFlight> in_flight_;
  std::vector<Span> spans_;
};

}  // namespace ddp::cluster
