#include "grader/real_time_report.h"

#include <gtest/gtest.h>

#include <iomanip>
#include <sstream>

#include "ddp/backends/limited_link.h"
#include "ddp/collectives.h"
#include "ddp/launching/launch.h"
#include "ddp/meters/statistics.h"
#include "grader/grading.h"
#include "grader/run_output.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

using MakeBackend = std::function<BackendPtr(const RankContext&)>;
using Report = std::function<void(ReportingRank&)>;

BackendPtr make_gloo(const RankContext& context) {
  return make_gloo_backend(context, std::chrono::seconds(60));
}

void run_rank(const RankContext& context, const MakeBackend& make_backend, const Report& report) {
  const ProcessGroupPtr group =
      make_process_group(make_backend(context), store_for_next_backend(context));
  load_stage_under_test();  // connects to nobody any more
  ReportingRank rank(context, group);
  report(rank);
  barrier(rank.group());  // no rank leaves while another one still needs it
}

void run_ranks(const MakeBackend& make_backend, const Report& report) {
  if (!settings().device.is_cpu()) {
    GTEST_SKIP() << "a report on CPU tensors only";
  }
  const MachineShare share(MachineShare::Mode::kAlone);
  const RankReports reports = fork_ranks(options_of_ranks(), [&](const RankContext& context) {
    run_rank(context, make_backend, report);
  });
  pass_prints_on("the report in real time", reports);
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

std::vector<double> medians_of(const std::vector<TimedWay>& ways, int rounds) {
  std::vector<std::vector<double>> milliseconds(ways.size());
  for (int round = 0; round < rounds; ++round) {  // interleaved: same conditions for all
    for (std::size_t way = 0; way < ways.size(); ++way) {
      milliseconds[way].push_back(ways[way].run());
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& times : milliseconds) {
    medians.push_back(percentile(times, 50));
  }
  return medians;
}

}  // namespace

std::vector<double> report_medians(ReportingRank& rank, const std::string& what,
                                   const std::vector<TimedWay>& ways, int rounds, int digits) {
  const std::vector<double> medians = medians_of(ways, rounds);
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << what;
  for (std::size_t way = 0; way < ways.size(); ++way) {
    text << (way == 0 ? " " : "; ") << ways[way].name << " " << medians[way] << " ms";
  }
  if (rank.rank() == 0) {
    rank.report_measured(text.str());
  }
  return medians;
}

void report_ratio(ReportingRank& rank, const std::string& what, const TimedWay& slow,
                  const TimedWay& fast, int rounds) {
  const std::vector<double> medians = medians_of({slow, fast}, rounds);
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << what << " " << slow.name << " " << medians[0]
       << " ms, " << fast.name << " " << medians[1] << " ms, ratio " << medians[0] / medians[1];
  if (rank.rank() == 0) {
    rank.report_measured(text.str());
  }
}

void run_in_real_time(const Report& report) { run_ranks(make_gloo, report); }

void run_on_limited_link(const NetworkModel& network, const Report& report) {
  run_ranks(
      [&](const RankContext& context) -> BackendPtr {
        return c10::make_intrusive<LimitedLink>(make_gloo(context), network);
      },
      report);
}

}  // namespace ddp::testing
