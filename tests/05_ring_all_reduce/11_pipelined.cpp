#include <ATen/ATen.h>

#include <iomanip>
#include <sstream>

#include "ddp/meters/statistics.h"
#include "ddp/ranks/launch.h"
#include "ring_data.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"

// The extension: a report, worth no points, and only if the results are right.

namespace ddp::testing {

namespace {

constexpr std::int64_t kWhole = std::int64_t{1} << 40;  // no chunk is larger than one segment

void expect_pipelined(Rank& rank, const RingCase& one, std::int64_t segment_bytes) {
  const int world_size = rank.world_size();
  const at::Tensor values = whole_values(one, rank.rank(), world_size);
  const at::Tensor tensor = values.clone();
  rank.recorder().clear();
  pipelined_ring_all_reduce(tensor, rank.group(), {.op = one.op, .segment_bytes = segment_bytes});
  EXPECT_TRUE(is_close(
      {describe(one) + ", pipelined in segments of " + std::to_string(segment_bytes) + " bytes,",
       world_size, values},
      tensor, combined_whole_values(one, world_size), tolerance_of(one)));
  for (const RecordedOperation& operation : rank.recorder().operations()) {
    const int distance = (operation.peer - rank.rank() + world_size) % world_size;
    EXPECT_TRUE(operation.is_message() && (distance == 1 || distance == world_size - 1))
        << "the pipelined ring should send to its neighbours, and receive from them, only:"
        << list_of({operation});
  }
}

void expect_right(Rank& rank) {
  for (const std::int64_t segment_bytes : {std::int64_t{1}, std::int64_t{12}, kWhole}) {
    for (const std::int64_t size : {0, 1, 3, 8, 17}) {
      expect_pipelined(rank, {.elements = size}, segment_bytes);
    }
  }
  expect_pipelined(rank, {.elements = 1001, .dtype = at::kLong}, 256);
  expect_pipelined(rank, {.elements = 999, .dtype = at::kBFloat16, .op = ReduceOp::kAverage}, 100);
  for (const std::int64_t segment_bytes : {0, -1}) {
    EXPECT_THROW(
        pipelined_ring_all_reduce(at::ones({6}), rank.group(), {.segment_bytes = segment_bytes}),
        c10::Error)
        << "segment_bytes = " << segment_bytes << " should be refused";
  }
  const RingCase one{.elements = 2051, .op = ReduceOp::kAverage};
  const at::Tensor tensor = random_values(one, rank.rank());
  pipelined_ring_all_reduce(tensor, rank.group(), {.op = one.op, .segment_bytes = 300});
  EXPECT_TRUE(has_same_bits_everywhere(rank, tensor))
      << describe(one) << ", pipelined, has not the same bits on all ranks";
}

// Interleaved, so that both are measured under the same conditions.
void report_ratio(Rank& rank, const ProcessGroupPtr& group, std::int64_t mebibytes, int rounds) {
  const at::Tensor tensor = at::ones({mebibytes << 18});
  std::vector<double> ring;
  std::vector<double> gloo;
  for (int round = 0; round <= rounds; ++round) {
    barrier(group);
    Stopwatch watch;
    pipelined_ring_all_reduce(tensor, group);
    ring.push_back(watch.lap());
    barrier(group);
    watch.lap();
    all_reduce(tensor, group);
    gloo.push_back(watch.lap());
    tensor.fill_(1);
  }
  ring.erase(ring.begin());  // the first repetition was the warm-up
  gloo.erase(gloo.begin());
  if (rank.rank() == 0) {
    std::ostringstream text;
    text << "leaderboard: pipelined ring on " << rank.world_size() << " ranks, speed relative to "
         << "Gloo's all-reduce at " << mebibytes << " MiB: " << std::fixed << std::setprecision(2)
         << percentile(gloo, 50) / percentile(ring, 50);
    rank.report_measured(text.str());
  }
}

const GradedTest kPipelined{
    {.name = "pipelined_ring_beside_gloos_all_reduce",
     .points = 0,
     .hint = "An extension, worth no points: chunks in segments, so that adding one overlaps with "
             "the transfer of the next. How fast does it get?"},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "compared with Gloo's all-reduce on the CPU only";
      }
      // In real time, without delays: the simulated network sends messages in the order of their
      // launches, which couples the two directions.
      RankOptions options;
      options.network = {.alpha_ns = 0, .beta_ns_per_byte = 0};
      options.real_time = true;
      run_worlds({1, 2, 3, 4}, expect_right, options);
      if (::testing::Test::HasFailure() || ::testing::Test::IsSkipped()) {
        return;
      }
      run_ranks(options, [](Rank& rank) {
        const ProcessGroupPtr gloo = make_gloo_group(rank.context());
        report_ratio(rank, gloo, 1, /*rounds=*/11);
        report_ratio(rank, gloo, 4, /*rounds=*/5);
        report_ratio(rank, gloo, 16, /*rounds=*/3);
      });
    }};

}  // namespace

}  // namespace ddp::testing
