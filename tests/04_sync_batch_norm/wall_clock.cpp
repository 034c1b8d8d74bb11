#include <ATen/ATen.h>

#include <functional>
#include <sstream>

#include "ddp/collectives.h"
#include "ddp/meters/statistics.h"
#include "support/grading.h"
#include "support/real_time_report.h"
#include "uses.h"

// The same in real time: a report, worth no points.

namespace ddp::testing {

namespace {

constexpr int kRounds = 15;

TimedWay way(const char* name, const std::function<void()>& run) {
  return {name, [run] {
            const Stopwatch watch;
            run();
            return 1e3 * watch.seconds();
          }};
}

void report_times(ReportingRank& rank) {
  constexpr std::int64_t kBatch = 64;
  constexpr std::int64_t kHidden = 1024;
  const auto numbers = [](at::IntArrayRef shape) {
    return random_numbers(shape, 1).to(at::kFloat);
  };
  const at::Tensor input = numbers({kBatch, kHidden}).set_requires_grad(true);
  const at::Tensor upstream = numbers({kBatch, kHidden});
  const BatchNormTensors tensors = {.weight = at::ones({kHidden}).set_requires_grad(true),
                                    .bias = at::zeros({kHidden}).set_requires_grad(true),
                                    .running_mean = at::zeros({kHidden}),
                                    .running_var = at::ones({kHidden})};
  std::ostringstream what;
  what << "forward and backward of [" << kBatch << ", " << kHidden << "] on each of "
       << rank.group()->getSize() << " ranks, median:";
  report_medians(rank, what.str(),
                 {way("synchronized",
                      [&] { sync_batch_norm(input, tensors, rank.group()).backward(upstream); }),
                  way("its two collectives alone, as all-reduces of float32,",
                      [&] {
                        all_reduce(at::zeros({2 * kHidden + 1}), rank.group());
                        all_reduce(at::zeros({2 * kHidden}), rank.group());
                      }),
                  way("libtorch's own, local,",
                      [&] {
                        at::batch_norm(input, tensors.weight, tensors.bias, tensors.running_mean,
                                       tensors.running_var, true, 0.1, 1e-5, false)
                            .backward(upstream);
                      })},
                 kRounds, /*digits=*/2);
}

const GradedTest kWallClock{
    {.name = "wall_clock_of_forward_and_backward",
     .points = 0,
     .hint = "A report, worth no points: your own time, and that of the two collectives."},
    [] { run_on_limited_link({.alpha_ns = 20'000, .beta_ns_per_byte = 0.2}, report_times); }};

}  // namespace

}  // namespace ddp::testing
