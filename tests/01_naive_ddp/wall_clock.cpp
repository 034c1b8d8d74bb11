#include <ATen/ATen.h>

#include <iomanip>
#include <sstream>

#include "01_naive_ddp/naive_ddp.h"
#include "ddp/meters/statistics.h"
#include "support/grading.h"
#include "support/real_time_report.h"

// The same in real time: a report, worth no points.

namespace ddp::testing {

namespace {

constexpr int kGradients = 40;
constexpr std::int64_t kElements = 4096;
constexpr int kRounds = 3;

double milliseconds_of_finish(GradientSynchronizer& synchronizer) {
  const Stopwatch watch;
  synchronizer.finish();
  return 1e3 * watch.seconds();
}

void report_ratio(ReportingRank& rank) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < kGradients; ++i) {
    parameters.push_back(at::zeros({kElements}).set_requires_grad(true));
    parameters.back().mutable_grad() = at::ones({kElements});
  }
  const auto naive = make_naive_ddp(parameters, {}, rank.group());
  const auto flat = make_flat_ddp(parameters, {}, rank.group());
  std::vector<double> naive_ms;
  std::vector<double> flat_ms;
  for (int round = 0; round < kRounds; ++round) {  // interleaved: same conditions for both
    naive_ms.push_back(milliseconds_of_finish(*naive));
    flat_ms.push_back(milliseconds_of_finish(*flat));
  }
  if (rank.rank() == 0) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << "finish() of " << kGradients << " gradients of "
         << kElements * sizeof(float) / 1024 << " KiB on a link of 1 Gbit/s and 0.2 ms latency, 2 "
         << "ranks: per parameter " << percentile(naive_ms, 50) << " ms, flat "
         << percentile(flat_ms, 50) << " ms, ratio "
         << percentile(naive_ms, 50) / percentile(flat_ms, 50);
    rank.report_measured(text.str());
  }
}

const GradedTest kWallClock{
    {.name = "wall_clock_on_a_rate_limited_link",
     .points = 0,
     .hint = "A report, worth no points: how much one message saves over many if each message has "
             "a cost."},
    [] { run_on_limited_link({.alpha_ns = 200'000, .beta_ns_per_byte = 8.0}, report_ratio); }};

}  // namespace

}  // namespace ddp::testing
