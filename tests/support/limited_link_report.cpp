#include "support/limited_link_report.h"

#include <gtest/gtest.h>

#include "ddp/backends/limited_link.h"
#include "ddp/collectives.h"
#include "ddp/ranks/launch.h"
#include "ddp/ranks/stage_library.h"
#include "support/grading.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

void run_rank(const RankContext& context, const NetworkModel& network,
              const std::function<void(ReportingRank&)>& report) {
  load_stage_library(settings().stage_library);
  const BackendPtr link = c10::make_intrusive<LimitedLink>(
      make_gloo_backend(context, std::chrono::seconds(60)), network);
  ReportingRank rank(context, make_process_group(link, store_for_next_backend(context)));
  report(rank);
  barrier(rank.group());  // no rank leaves while another one still needs it
}

}  // namespace

void run_on_limited_link(const NetworkModel& network,
                         const std::function<void(ReportingRank&)>& report) {
  if (!settings().device.is_cpu()) {
    GTEST_SKIP() << "the rate-limited link takes CPU tensors only";
  }
  ForkOptions options;
  options.deadline = settings().deadline;
  const RankReports reports =
      fork_ranks(options, [&](const RankContext& context) { run_rank(context, network, report); });
  for (const RankReport& rank : reports.ranks) {
    for (const std::string& measured : rank.messages) {
      note_measured(measured);
    }
  }
  if (reports.ok()) {
    return;
  }
  const RankReport& culprit = reports.ranks[reports.culprit];
  if (culprit.not_implemented) {
    note_todo(culprit.reason);
  } else {
    ADD_FAILURE() << reports.describe();
  }
}

}  // namespace ddp::testing
