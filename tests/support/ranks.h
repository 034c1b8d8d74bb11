#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/checked_backend.h"
#include "ddp/referee/recording_backend.h"
#include "ddp/simulation/simulated_network.h"
#include "support/settings.h"

namespace ddp::testing {

struct RankOptions {
  int world_size = 2;
  NetworkModel network;
  /// Finds reads of buffers in flight as well as writes.
  bool watch_accesses = false;
  /// Uses real time instead: operations take as long as `network` says, and are only recorded. For
  /// reports.
  bool real_time = false;
};

/// A rank of a test with its graded process group, which records, checks and times every launch.
class Rank {
 public:
  Rank(RankContext& context, const RankOptions& options);

  int rank() const { return context_.rank; }
  int world_size() const { return context_.world_size; }
  const ProcessGroupPtr& group() const { return group_; }
  /// For creating another group, without decorators around its backend.
  const RankContext& context() const { return context_; }
  RecordingBackend& recorder() { return *recorder_; }
  /// Only in virtual time.
  SimulatedNetwork& network() { return *network_; }
  const std::shared_ptr<VirtualClock>& clock() const { return clock_; }
  /// Null on a GPU and in real time, where buffers in flight are not checked.
  CheckedBackend* checked() { return checked_.get(); }
  /// Call it before counting memory or handles: the group may keep tensors of completed operations
  /// a little longer. Returns when it keeps none.
  void settle();
  /// From now on messages use these names for the tensors.
  void name(const std::vector<NamedTensor>& tensors);

  /// A line on the scorecard, worth no points, such as a measured ratio.
  void report_measured(const std::string& text);

  /// Call it at the end, if a trace is wanted: sends this rank's timeline to the parent.
  void send_timeline();

 private:
  BackendPtr make_backend(const RankOptions& options);
  BackendPtr decorate(BackendPtr backend, const RankOptions& options);

  RankContext& context_;
  std::shared_ptr<TensorNames> names_ = std::make_shared<TensorNames>();
  std::shared_ptr<VirtualClock> clock_ = std::make_shared<VirtualClock>();
  c10::intrusive_ptr<CheckedBackend> checked_;
  c10::intrusive_ptr<SimulatedNetwork> network_;
  c10::intrusive_ptr<RecordingBackend> recorder_;
  ProcessGroupPtr group_;
  std::shared_ptr<Timeline> timeline_;  // null without a trace, or in real time
};

/// Runs `body` as every rank of a world, in forked processes, with the stage's library loaded.
/// Expectations that fail in a rank fail the test here, with file, line and rank; so does a rank
/// that dies, hangs, throws, races, or leaves an operation without waiting for it.
void run_ranks(const RankOptions& options, const std::function<void(Rank&)>& body);

/// run_ranks() for one world size after another; stops at the first that fails.
void run_worlds(std::initializer_list<int> world_sizes, const std::function<void(Rank&)>& body,
                RankOptions options = {});

/// Reports that this rank is done, and returns when all are done or have failed: until then a rank
/// keeps its connections. Every body with a graded group ends with it.
void finish_together(RankContext& context);

/// Runs `body` in one forked process without a process group: for tests that use tensors, which the
/// parent may not use.
void in_child(const std::function<void()>& body);

/// The same for ranks without a graded group, for tests of the harness itself. Returns the reports.
RankReports run_plain_ranks(const ForkOptions& options, const RankBody& body);

}  // namespace ddp::testing
