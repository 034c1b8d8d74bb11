#include <ATen/ATen.h>

#include <iomanip>
#include <sstream>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/meters/statistics.h"
#include "reducer.h"
#include "support/grading.h"
#include "support/real_time_report.h"

// The same in real time: a report, worth no points.

namespace ddp::testing {

namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kBatch = 512;
constexpr int kDepth = 12;
constexpr int kRounds = 3;

double milliseconds_of_step(const std::vector<at::Tensor>& weights, const at::Tensor& input,
                            GradientSynchronizer& synchronizer) {
  const Stopwatch watch;
  at::Tensor x = input;
  for (const at::Tensor& weight : weights) {
    x = at::tanh(at::matmul(x, weight));
  }
  x.mean().backward();
  synchronizer.finish();
  return 1e3 * watch.seconds();
}

void report_times(ReportingRank& rank) {
  constexpr std::int64_t kLayerBytes = kWidth * kWidth * 4;
  std::vector<at::Tensor> weights;
  weights.reserve(kDepth);
  for (int i = 0; i < kDepth; ++i) {
    weights.push_back(at::full({kWidth, kWidth}, 1.0 / kWidth).set_requires_grad(true));
  }
  const at::Tensor input = at::ones({kBatch, kWidth});
  // Only one exists at a time, so that each step has one synchronizer.
  const auto way = [&](const char* name, const BucketedDdpOptions& options) {
    return TimedWay{name, [&, options] {
                      const auto synchronizer =
                          make_bucketed_ddp(weights, {}, rank.group(), options);
                      return milliseconds_of_step(weights, input, *synchronizer);
                    }};
  };
  const TimedWay reducer{"c10d::Reducer, 3 layers in a bucket", [&] {
                           ReducerAsSynchronizer synchronizer(weights, rank.group(),
                                                              3 * kLayerBytes);
                           return milliseconds_of_step(weights, input, synchronizer);
                         }};
  std::ostringstream what;
  what << "a step of " << kDepth << " layers of " << kLayerBytes / 1024
       << " KiB on a link of 4 Gbit/s and 0.5 ms latency, 2 ranks:";
  const std::vector<double> medians =
      report_medians(rank, what.str(),
                     {way("a bucket for each layer", {.cap_bytes = 1}),
                      way("3 layers in a bucket", {.cap_bytes = 3 * kLayerBytes}),
                      way("one bucket", {.cap_bytes = kDepth * kLayerBytes}),
                      way("3 layers in a bucket without overlap",
                          {.cap_bytes = 3 * kLayerBytes, .overlap = false}),
                      reducer},
                     kRounds, /*digits=*/1);
  if (rank.rank() == 0) {  // in virtual time all that pass are equally fast
    std::ostringstream text;
    text << "leaderboard: bucketed step on a slow link, speed relative to c10d::Reducer's: "
         << std::fixed << std::setprecision(2) << medians.back() / medians[1];
    rank.report_measured(text.str());
  }
}

const GradedTest kWallClock{
    {.name = "wall_clock_over_the_cap",
     .points = 0,
     .hint = "A report, worth no points: how much overlap and the size of buckets matter on a slow "
             "link."},
    [] { run_on_limited_link({.alpha_ns = 500'000, .beta_ns_per_byte = 2.0}, report_times); }};

}  // namespace

}  // namespace ddp::testing
