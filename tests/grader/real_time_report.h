#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ddp/launching/process_group.h"
#include "ddp/network_model.h"
#include "ddp/ranks/fork_ranks.h"

namespace ddp::testing {

/// One of two ranks that measure something in real time.
class ReportingRank {
 public:
  ReportingRank(const RankContext& context, ProcessGroupPtr group)
      : context_(context), group_(std::move(group)) {}

  int rank() const { return context_.rank; }
  const ProcessGroupPtr& group() const { return group_; }
  /// A line on the scorecard, worth no points, such as a measured ratio.
  void report_measured(const std::string& text) { context_.send_to_parent(text); }

 private:
  const RankContext& context_;
  ProcessGroupPtr group_;
};

/// One of several ways to do something: `run` returns the milliseconds that count.
struct TimedWay {
  std::string name;
  std::function<double()> run;
};

/// Runs all ways `rounds` times, interleaved, so that all are measured under the same conditions.
/// Rank 0 reports "<what> <name> <median> ms; <name> <median> ms", with so many digits. Returns this
/// rank's medians.
std::vector<double> report_medians(ReportingRank& rank, const std::string& what,
                                   const std::vector<TimedWay>& ways, int rounds, int digits);

/// The same of two ways, of which the second is to be faster, and by what factor it is: "<what> <name>
/// <median> ms, <name> <median> ms, ratio <ratio>".
void report_ratio(ReportingRank& rank, const std::string& what, const TimedWay& slow,
                  const TimedWay& fast, int rounds);

/// Runs `report` in two ranks with the stage's library, over Gloo and the loopback device: a report,
/// worth no points. Skips the test on a GPU.
void run_in_real_time(const std::function<void(ReportingRank&)>& report);

/// The same over a link as slow as `network` says.
void run_on_limited_link(const NetworkModel& network,
                         const std::function<void(ReportingRank&)>& report);

}  // namespace ddp::testing
