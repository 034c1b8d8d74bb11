#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddp/cluster/cluster_backend.h"
#include "ddp/collectives.h"

namespace ddp::cluster {

/// A training cluster of any size in one process: it runs the code of rank 0, and the other ranks do
/// the same. Tensors are on the meta device, where they have shapes and no values; what takes time
/// on a GPU moves virtual clocks, in integer nanoseconds, the same in every run.
///
/// Three clocks, as of a GPU: the host, the compute stream and the communication stream. An operator
/// that moves data costs the host a launch, and the compute stream the time of its bytes; views cost
/// nothing. A collective begins when the host has launched it, the compute stream is done with what
/// was launched before it, and the collective before it has ended; it lasts what the topology says.
/// A wait holds up what is launched after it, by whichever means: a handle, a future, a poll.
class Cluster {
 public:
  /// Throws c10::ValueError, which says what is wrong with the options.
  explicit Cluster(const ClusterOptions& options);

  const ClusterOptions& options() const { return options_; }

  /// The group that the code under simulation communicates through. It may outlive the cluster.
  const ProcessGroupPtr& group() const { return group_; }

  /// Runs code whose operators take virtual time. To a c10::Error from within, of whatever cause, it
  /// adds the place in the stage's code, or in the lab's if no stage took part, as "(solutions/
  /// 01_naive_ddp/naive_ddp.cpp:42 in ddp::f)".
  void run(const std::function<void()>& code);

  /// How long code takes that begins with all clocks at zero, until it and what it launched on the
  /// compute stream are done, in nanoseconds.
  std::int64_t time(const std::function<void()>& code);

  /// Sets all clocks to zero.
  void begin_step() { backend_->begin_step(); }

  /// Keeps the compute stream busy, as an operator would that takes `ns`, and the host as its
  /// launch does.
  void compute(std::int64_t ns, const std::string& name, const HostWork& host = {}) {
    backend_->compute(ns, name, host);
  }

  Clocks clocks() const { return backend_->clocks(); }
  /// What happened since begin_step().
  const std::vector<Span>& spans() const { return backend_->spans(); }

 private:
  ClusterOptions options_;
  c10::intrusive_ptr<ClusterBackend> backend_;
  ProcessGroupPtr group_;
};

}  // namespace ddp::cluster
