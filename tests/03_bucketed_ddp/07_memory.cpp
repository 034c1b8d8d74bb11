#include <ATen/ATen.h>

#include "ddp/meters/memory_meter.h"
#include "plan.h"
#include "support/communication_checks.h"
#include "support/grading.h"

// How much memory the buckets take, and that it does not grow.

namespace ddp::testing {

namespace {

constexpr std::int64_t kLayers = 8;
constexpr std::int64_t kElements = 4096;
constexpr std::int64_t kLayerBytes = kElements * 4;
constexpr std::int64_t kGradientBytes = kLayers * kLayerBytes;
constexpr std::int64_t kNumbers = 4096;  // bytes for losses, counts, sizes
constexpr int kSteps = 61;
constexpr int kSettled = 6;  // steps after which nothing new should be needed

// Backward keeps nothing but the gradients, and briefly needs space for one more.
void run_backward(const std::vector<NamedTensor>& parameters) {
  at::Tensor loss = at::zeros({});
  for (const NamedTensor& parameter : parameters) {
    loss = loss + (parameter.tensor * 2).sum();
  }
  loss.backward();
}

void expect_at_most(std::int64_t bytes, std::int64_t limit, const std::string& when) {
  EXPECT_LE(bytes, limit + kNumbers)
      << when << " " << bytes << " bytes are in use, " << bytes - limit << " more than the limit: "
      << "all flat tensors together may take the gradients' " << kGradientBytes
      << " bytes and one bucket";
}

// Counts memory allocated from here on: the gradients that backward makes, and the synchronizer's
// own.
void expect_memory(Rank& rank, std::int64_t layers_in_bucket) {
  std::vector<NamedTensor> parameters;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    parameters.push_back(
        {"layer " + std::to_string(i), at::ones({kElements}).set_requires_grad(true)});
  }
  rank.name(parameters);
  const std::int64_t cap = layers_in_bucket * kLayerBytes;
  const std::int64_t buffers = kGradientBytes + cap;  // the cap is the size of a bucket here
  const std::string what = " (cap: " + std::to_string(cap) + " bytes)";

  MemoryMeter meter;
  const auto synchronizer = bucketed(cap)(tensors_of(parameters), {}, rank.group());
  expect_at_most(meter.live_bytes(), buffers, "after construction" + what);
  std::int64_t live_at_first = 0;
  std::int64_t handles_at_first = 0;
  for (int step = 0; step < kSteps; ++step) {
    clear_gradients(parameters, /*to_none=*/step % 3 == 0);
    rank.recorder().clear();
    meter.reset_peak();
    run_backward(parameters);
    synchronizer->finish();
    EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty()) << "nothing was reduced";
    expect_at_most(meter.peak_bytes() - kGradientBytes - kLayerBytes, buffers,
                   "within step " + std::to_string(step) + ", beside the gradients" + what);
    rank.settle();  // the harness releases buffers in flight with a delay
    if (step == kSettled) {
      live_at_first = meter.live_bytes();
      handles_at_first = rank.recorder().live_handles();
    }
  }
  EXPECT_LE(meter.live_bytes(), live_at_first + kNumbers)
      << "memory grows from step to step: bytes in use after " << kSettled << " and after "
      << kSteps - 1 << " steps" << what;
  EXPECT_LE(rank.recorder().live_handles(), handles_at_first)
      << "handles of old all-reduces are kept: their number after " << kSettled << " and after "
      << kSteps - 1 << " steps" << what;
}

const GradedTest kMemory{
    {.name = "buckets_take_the_gradients_bytes_and_one_bucket",
     .points = 1,
     .hint = "One flat tensor for each bucket, allocated once or at its launch; no other copies of "
             "gradients, and nothing that grows from step to step."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      run_worlds({2, 3}, [](Rank& rank) {
        for (const std::int64_t layers_in_bucket : {std::int64_t{1}, std::int64_t{2}, kLayers}) {
          expect_memory(rank, layers_in_bucket);
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
