#include <ATen/ATen.h>

#include <functional>

#include "ddp/meters/memory_meter.h"
#include "norm_case.h"
#include "support/communication_checks.h"
#include "support/grading.h"

// What is kept for backward.

namespace ddp::testing {

namespace {

constexpr std::int64_t kChannels = 16;
constexpr std::int64_t kFewNumbers = 4096 + kChannels * 128;  // O(C), in bytes

// How the input is made: from an existing leaf, by operators that keep nothing for backward.
struct Source {
  std::string name;
  at::ScalarType dtype;
  std::function<at::Tensor(const at::Tensor& leaf)> make;
};

std::vector<Source> sources() {
  return {{"a contiguous input", at::kFloat, [](const at::Tensor& leaf) { return leaf * 2; }},
          {"a half-precision input", at::kHalf, [](const at::Tensor& leaf) { return leaf * 2; }},
          {"a channels_last input", at::kFloat,
           [](const at::Tensor& leaf) {
             return (leaf * 2).contiguous(at::MemoryFormat::ChannelsLast);
           }},
          {"a transposed input", at::kFloat,
           [](const at::Tensor& leaf) { return (leaf * 2).transpose(0, 2); }}};
}

at::Tensor make_leaf(const Source& source) {
  return random_numbers({32, kChannels, 16, 16}, 11).to(source.dtype).set_requires_grad(true);
}

// Bytes in use after forward in addition to its output, when only the graph keeps the input.
std::int64_t kept_bytes(Rank& rank, const Source& source, const BatchNormTensors& tensors,
                        const SyncBatchNormOptions& options) {
  const at::Tensor leaf = make_leaf(source);
  const MemoryMeter meter;
  rank.recorder().clear();
  at::Tensor input = source.make(leaf);
  const at::Tensor output = sync_batch_norm(input, tensors, rank.group(), options);
  input.reset();
  rank.settle();  // the harness releases buffers in flight with a delay
  EXPECT_EQ(rank.recorder().operations().empty(), !options.training)
      << (options.training ? "nothing was communicated" : "evaluation communicated");
  return meter.live_bytes() - static_cast<std::int64_t>(output.nbytes());
}

void expect_kept(Rank& rank, const Source& source) {
  const auto channels = at::TensorOptions(at::kFloat);
  const BatchNormTensors tensors = {
      .weight = at::ones({kChannels}, channels).set_requires_grad(true),
      .bias = at::zeros({kChannels}, channels).set_requires_grad(true),
      .running_mean = at::zeros({kChannels}, channels),
      .running_var = at::ones({kChannels}, channels)};
  const auto input_bytes = static_cast<std::int64_t>(make_leaf(source).nbytes());
  for (const bool training : {true, false}) {
    const std::int64_t kept = kept_bytes(rank, source, tensors, {.training = training});
    EXPECT_LE(kept, input_bytes + kFewNumbers)
        << "for backward, of " << source.name << (training ? "" : " in evaluation") << ", " << kept
        << " bytes are kept: " << static_cast<double>(kept) / static_cast<double>(input_bytes)
        << " x the input's " << input_bytes
        << ", where the input and a few numbers for each channel are enough";
  }
  const at::NoGradGuard no_grad;
  EXPECT_LE(kept_bytes(rank, source, tensors, {}), kFewNumbers)
      << "there is no graph here, and so nothing to be kept for backward of " << source.name;
}

// Steps that leave nothing behind.
void expect_no_growth(Rank& rank, const Source& source) {
  constexpr int kSteps = 30;
  constexpr int kSettled = 5;
  const at::Tensor leaf = make_leaf(source).detach().narrow(0, 0, 2).set_requires_grad(true);
  const MemoryMeter meter;
  std::int64_t live_at_first = 0;
  std::int64_t handles_at_first = 0;
  for (int step = 0; step < kSteps; ++step) {
    leaf.mutable_grad() = at::Tensor();
    const at::Tensor output = sync_batch_norm(source.make(leaf), {}, rank.group());
    if (step % 2 == 0) {  // otherwise the graph is destroyed without backward
      output.sum().backward();
    }
    rank.settle();
    if (step == kSettled) {
      live_at_first = meter.live_bytes();
      handles_at_first = rank.recorder().live_handles();
    }
  }
  EXPECT_LE(meter.live_bytes(), live_at_first + kFewNumbers / 2)
      << "memory grows from step to step: bytes in use after " << kSettled << " and after "
      << kSteps - 1 << " steps";
  EXPECT_LE(rank.recorder().live_handles(), handles_at_first)
      << "handles of old collectives are kept: their number after " << kSettled << " and after "
      << kSteps - 1 << " steps";
}

const GradedTest kMemory{
    {.name = "backward_keeps_no_more_than_the_input",
     .points = 1,
     .hint = "save_for_backward() the input, the mean and the inverse deviation: x-hat follows "
             "from them, so do not keep it, nor a converted copy of the input."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      run_worlds({2}, [](Rank& rank) {
        for (const Source& source : sources()) {
          expect_kept(rank, source);
        }
        expect_no_growth(rank, sources().front());
      });
    }};

}  // namespace

}  // namespace ddp::testing
