#include <ATen/ATen.h>

#include <iomanip>
#include <sstream>

#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/meters/statistics.h"
#include "support/grading.h"
#include "support/real_time_report.h"

// The same in real time: a report, worth no points.

namespace ddp::testing {

namespace {

constexpr int kLayers = 8;
constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kRows = 512;
constexpr int kRounds = 5;

at::Tensor forward(const std::vector<at::Tensor>& weights, const at::Tensor& input) {
  at::Tensor x = input;
  for (const at::Tensor& weight : weights) {
    x = x.mm(weight);
  }
  return x.sum();
}

// From the end of forward to the end of finish(). Inside NoSync hooks launch nothing, and finish()
// sends everything: the same code, working like naive DDP.
double milliseconds_of_step(GradientSynchronizer& synchronizer, const at::Tensor& loss,
                            bool overlapping) {
  const Stopwatch watch;
  if (overlapping) {
    loss.backward();
  } else {
    const NoSync scope(synchronizer);
    loss.backward();
  }
  synchronizer.finish();
  return 1e3 * watch.seconds();
}

void report_ratio(ReportingRank& rank) {
  std::vector<at::Tensor> weights;
  weights.reserve(kLayers);
  for (int i = 0; i < kLayers; ++i) {
    weights.push_back((at::eye(kWidth) / 2).set_requires_grad(true));
  }
  const at::Tensor input = at::ones({kRows, kWidth});
  const auto synchronizer = make_overlapped_ddp(weights, {}, rank.group());
  std::vector<double> overlapped_ms;
  std::vector<double> naive_ms;
  for (int round = 0; round < kRounds; ++round) {  // interleaved: same conditions for both
    overlapped_ms.push_back(milliseconds_of_step(*synchronizer, forward(weights, input), true));
    naive_ms.push_back(milliseconds_of_step(*synchronizer, forward(weights, input), false));
  }
  if (rank.rank() == 0) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << "backward and finish() of " << kLayers
         << " layers with " << kWidth * kWidth * sizeof(float) / 1024
         << " KiB each on a link of 1 Gbit/s and 0.2 ms latency, 2 ranks: all sent after backward "
         << percentile(naive_ms, 50) << " ms, overlapped " << percentile(overlapped_ms, 50)
         << " ms, ratio " << percentile(naive_ms, 50) / percentile(overlapped_ms, 50);
    rank.report_measured(text.str());
  }
}

const GradedTest kWallClock{
    {.name = "wall_clock_on_a_rate_limited_link",
     .points = 0,
     .hint = "A report, worth no points: how much time is saved if communication runs during "
             "backward instead of after it."},
    [] { run_on_limited_link({.alpha_ns = 200'000, .beta_ns_per_byte = 8.0}, report_ratio); }};

}  // namespace

}  // namespace ddp::testing
