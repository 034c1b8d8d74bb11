#include <ATen/ATen.h>

#include "ddp/meters/memory_meter.h"
#include "ring_data.h"
#include "support/compare.h"
#include "support/grading.h"
#include "uncounted_messages.h"

// How much memory the ring takes in addition to the tensor, and that it keeps none of it.

namespace ddp::testing {

namespace {

constexpr std::int64_t kElements = 30'721;  // not divisible by any world size
constexpr std::int64_t kConstant = 4096;    // bytes for everything but chunks: numbers, sizes
constexpr int kCalls = 6;
constexpr int kSettled = 2;  // calls after which nothing new should be needed

void expect_one_chunk(Rank& rank, const ProcessGroupPtr& group, const RingCase& one) {
  const at::Tensor values = whole_values(one, rank.rank(), rank.world_size());
  const at::Tensor tensor = values.clone();
  const std::int64_t chunk =
      chunk_of(tensor, 0, rank.world_size()).numel() * tensor.element_size();  // the largest
  MemoryMeter meter;
  std::int64_t live_at_first = 0;
  std::int64_t handles_at_first = 0;
  for (int call = 0; call < kCalls; ++call) {
    tensor.copy_(values);
    meter.reset_peak();
    ring_all_reduce(tensor, group, one.op);
    EXPECT_LE(meter.peak_bytes(), chunk + kConstant)
        << describe(one) << ", " << tensor.nbytes() << " bytes: at its peak the all-reduce had "
        << meter.peak_bytes() << " bytes in use beside the tensor; one chunk, which is " << chunk
        << " bytes here, and " << kConstant << " bytes are enough";
    rank.settle();  // the harness releases buffers in flight with a delay
    if (call == kSettled) {
      live_at_first = meter.live_bytes();
      handles_at_first = rank.recorder().live_handles();
    }
  }
  EXPECT_LE(meter.live_bytes(), live_at_first + kConstant)
      << "memory grows from call to call: bytes in use after " << kSettled << " and after "
      << kCalls - 1 << " calls of " << describe(one);
  EXPECT_LE(rank.recorder().live_handles(), handles_at_first)
      << "handles of old messages are kept: their number after " << kSettled << " and after "
      << kCalls - 1 << " calls of " << describe(one);
  EXPECT_TRUE(is_close({describe(one), rank.world_size(), values}, tensor,
                       combined_whole_values(one, rank.world_size()), tolerance_of(one)));
}

const GradedTest kMemory{
    {.name = "memory_beside_the_tensor_is_one_chunk",
     .points = 1,
     .hint = "Receive what you add into one buffer of a chunk's size, and what you keep into its "
             "place. Views of the tensor (narrow) need no memory, copies do."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        const ProcessGroupPtr group = make_uncounted_group(rank);
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
          expect_one_chunk(rank, group,
                           {.elements = kElements, .dtype = dtype, .op = ReduceOp::kAverage});
        }
        expect_one_chunk(rank, group, {.elements = kElements, .dtype = at::kLong});
      });
    }};

}  // namespace

}  // namespace ddp::testing
