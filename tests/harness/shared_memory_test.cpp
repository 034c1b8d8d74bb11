// The backend of the graded tests compared with Gloo: the same operations, the same results.
#include "ddp/backends/shared_memory_backend.h"
#include "ddp/ranks/launch.h"
#include "group_checks.h"
#include "support/compare.h"
#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::expect_plain_ranks_pass;

// Shared memory as in the graded tests, behind CheckedBackend: operations block at their launch, so
// threads launch them.
ProcessGroupPtr shared_memory_group(RankContext& context) {
  const auto backend =
      c10::make_intrusive<SharedMemoryBackend>(*context.exchange, context.rank, context.world_size);
  const auto checked =
      c10::make_intrusive<CheckedBackend>(backend, std::make_shared<TensorNames>(), *context.board);
  return make_process_group(checked, context.store);
}

// All decorators, but over Gloo.
ProcessGroupPtr graded_gloo_group(RankContext& context) {
  const auto names = std::make_shared<TensorNames>();
  const BackendPtr gloo = make_gloo_backend(context, std::chrono::seconds(20));
  const auto checked = c10::make_intrusive<CheckedBackend>(gloo, names, *context.board);
  const auto simulated = c10::make_intrusive<SimulatedNetwork>(
      checked, std::make_shared<VirtualClock>(), NetworkModel{}, *context.board);
  const auto recording = c10::make_intrusive<RecordingBackend>(simulated, names, context.board);
  return make_process_group(recording, context.store);
}

// The same numbers in every run, different on each rank.
at::Tensor numbers_of(const RankContext& context, at::ScalarType dtype) {
  at::Tensor numbers = at::arange(60, at::kDouble).mul(0.1 + context.rank).sin();
  if (!at::isFloatingType(dtype)) {
    numbers = numbers.mul(100).round().abs();
  }
  return numbers.view({5, 12}).to(dtype);
}

TEST(SharedMemory, DoesAllCollectives) {
  for (const int world_size : {1, 2, 3, 8}) {
    expect_plain_ranks_pass({.world_size = world_size}, [](RankContext& context) {
      testing::check_collectives(shared_memory_group(context), at::kCPU);
    });
  }
}

TEST(SharedMemory, CarriesReducer) {
  expect_plain_ranks_pass({.world_size = 3}, [](RankContext& context) {
    testing::check_reducer(shared_memory_group(context), at::kCPU);
  });
}

TEST(GradedGloo, DoesAllCollectivesAndCarriesReducer) {
  for (const int world_size : {1, 2, 3}) {
    expect_plain_ranks_pass({.world_size = world_size}, [](RankContext& context) {
      const ProcessGroupPtr group = graded_gloo_group(context);
      testing::check_collectives(group, at::kCPU);
      testing::check_reducer(group, at::kCPU);
    });
  }
}

TEST(SharedMemory, ReducesAsGlooDoes) {
  for (const int world_size : {1, 2, 3, 4, 8}) {
    expect_plain_ranks_pass({.world_size = world_size}, [](RankContext& context) {
      const ProcessGroupPtr shared = shared_memory_group(context);
      const ProcessGroupPtr gloo = make_gloo_group(context);
      for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kHalf, at::kBFloat16}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
          const at::Tensor mine = numbers_of(context, dtype);
          const at::Tensor ours = mine.clone();
          const at::Tensor theirs = mine.clone();
          all_reduce(ours, shared, op);
          all_reduce(theirs, gloo, op);
          // Only sums depend on the order, by one rounding per rank.
          const double epsilon = dtype == at::kDouble     ? 0x1p-53
                                 : dtype == at::kFloat    ? 0x1p-24
                                 : dtype == at::kHalf     ? 0x1p-11
                                 : dtype == at::kBFloat16 ? 0x1p-8
                                                          : 0;
          const double world_size = context.world_size;
          const double tolerance = op == ReduceOp::kSum ? 2 * epsilon * world_size * world_size : 0;
          EXPECT_TRUE(testing::is_close({.name = c10::toString(dtype)}, ours, theirs, tolerance));
          EXPECT_TRUE(at::equal(all_gather(ours, gloo).select(0, 0), ours)) << "ranks differ";
        }
      }
    });
  }
}

TEST(SharedMemory, ManyInARowKeepApart) {
  expect_plain_ranks_pass({.world_size = 4}, [](RankContext& context) {
    const ProcessGroupPtr group = shared_memory_group(context);
    for (int i = 0; i < 200; ++i) {
      const at::Tensor tensor = at::full({3}, i + context.rank, at::kLong);
      all_reduce(tensor, group);
      ASSERT_EQ(tensor[2].item<int>(), 4 * i + 6);
      broadcast(tensor, group, i % 4);
    }
  });
}

// Larger than a mailbox, with several tags at once, and not a multiple of any buffer size.
TEST(SharedMemory, LargeMessagesArriveWhole) {
  expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = shared_memory_group(context);
    const int peer = 1 - context.rank;
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> received;
    for (const int tag : {0, 1, 2}) {
      const std::int64_t count = 700'001 * (tag + 1);
      received.push_back(at::zeros({count}));
      works.push_back(send_async(at::arange(count, at::kFloat) + context.rank, peer, group, tag));
    }
    for (const int tag : {2, 1, 0}) {
      works.push_back(recv_async(received[tag], peer, group, tag));
    }
    for (const WorkPtr& work : works) {
      work->wait();
    }
    for (const at::Tensor& tensor : received) {
      EXPECT_TRUE(at::equal(tensor, at::arange(tensor.numel(), at::kFloat) + peer));
    }
    const at::Tensor large = at::ones({3 << 20});
    all_reduce(large, group);
    EXPECT_EQ(large.sum().item<double>(), 2.0 * (3 << 20));
    EXPECT_THROW(all_reduce(at::empty({(8 << 20) + 1}, at::kDouble), group), c10::Error);
  });
}

TEST(SharedMemory, UnevenAllToAll) {
  expect_plain_ranks_pass({.world_size = 3}, [](RankContext& context) {
    const ProcessGroupPtr group = shared_memory_group(context);
    const int rank = context.rank;
    // Rank r gives rank q r + q + 1 rows of its number.
    at::Tensor input = at::full({3 * rank + 6, 2}, rank);
    at::Tensor output = at::zeros({3 * rank + 6, 2}, input.options());
    std::vector<std::int64_t> splits{rank + 1, rank + 2, rank + 3};
    group->alltoall_base(output, input, splits, splits)->wait();
    const auto parts = output.split_with_sizes(splits);
    for (int from = 0; from < 3; ++from) {
      EXPECT_TRUE(parts[from].eq(from).all().item<bool>());
    }
  });
}

}  // namespace
}  // namespace ddp
