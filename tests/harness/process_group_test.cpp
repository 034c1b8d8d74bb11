// Process groups over each backend for host memory: our helpers, c10d's own calls, and c10d::Reducer.
#include "ddp/ranks/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "ddp/backends/host_staged_backend.h"
#include "ddp/ranks/launch.h"
#include "ddp/shm/shm_backend.h"
#include "group_checks.h"
#include "harness/checks.h"
#include "support/ranks.h"

namespace ddp {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);

ProcessGroupPtr gloo_group(const RankContext& context) { return make_gloo_group(context); }

// Copies host tensors although it need not: the whole path of a GPU, without the GPU.
ProcessGroupPtr staged_group(const RankContext& context) {
  return make_process_group(c10::make_intrusive<HostStagedBackend>(
                                make_gloo_backend(context, kTimeout), Staging::kAllTensors),
                            context.store);
}

ProcessGroupPtr shm_group(const RankContext& context) {
  return make_process_group(make_shm_backend(context, kTimeout), context.store);
}

// Even and odd world sizes, and a single rank. Four are more than the cores of some machines: those
// that share memory sleep instead of spinning.
void for_worlds(const RankBody& body) {
  for (const int world_size : {1, 2, 3, 4}) {
    testing::expect_plain_ranks_pass({.world_size = world_size}, body);
  }
}

using NamedGroup = std::pair<const char*, ProcessGroupPtr (*)(const RankContext&)>;

class ProcessGroups : public ::testing::TestWithParam<NamedGroup> {};

TEST_P(ProcessGroups, DoAllOperationsAndCarryTheReducer) {
  for_worlds(
      [](RankContext& context) { testing::check_group(GetParam().second(context), at::kCPU); });
}

INSTANTIATE_TEST_SUITE_P(All, ProcessGroups,
                         ::testing::Values(NamedGroup("gloo", gloo_group),
                                           NamedGroup("host_staged", staged_group),
                                           NamedGroup("shm", shm_group)),
                         [](const auto& named) { return named.param.first; });

TEST(HostStagedBackend, WorksOnCopiesUntilTheWait) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = staged_group(context);
    const at::Tensor tensor = at::ones({100});
    const WorkPtr work = all_reduce_async(tensor, group);
    barrier(group);  // Gloo has finished with both
    EXPECT_TRUE(tensor.eq(1).all().item<bool>());
    work->wait();
    EXPECT_TRUE(tensor.eq(2).all().item<bool>());
  });
}

// One element less and more than a cell and a channel hold, and many of each.
TEST(ShmBackend, MovesTensorsOfAnySize) {
  for_worlds([](RankContext& context) {
    const ProcessGroupPtr group = shm_group(context);
    const int ranks = context.world_size;
    for (const std::int64_t size : {0, 1, 32'767, 32'768, 32'769, 131'071, 131'072, 1'000'003}) {
      const at::Tensor own = at::arange(size, at::kFloat).remainder(1009) + context.rank;
      const at::Tensor sum = own.clone();
      all_reduce(sum, group);
      const double others = ranks * (ranks - 1) / 2.0 - ranks * context.rank;
      EXPECT_TRUE(at::equal(sum, own * ranks + others)) << size;
      const at::Tensor received = at::empty_like(own);
      if (ranks > 1) {
        const int next = (context.rank + 1) % ranks;
        const int last = (context.rank + ranks - 1) % ranks;
        const WorkPtr sending = send_async(own, next, group);
        recv(received, last, group);
        sending->wait();
        EXPECT_TRUE(at::equal(received, own - context.rank + last)) << size;
      }
    }
  });
}

// A blocking launch would deadlock.
TEST(ShmBackend, LaunchesDoNotWait) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = shm_group(context);
    const at::Tensor large = at::ones({3'000'000});
    const at::Tensor small = at::ones({3});
    if (context.rank == 0) {
      const WorkPtr first = all_reduce_async(large, group);
      const WorkPtr second = all_reduce_async(small, group);
      send(small.clone(), 1, group);
      first->wait();
      second->wait();
    } else {
      recv(at::empty({3}), 0, group);
      const WorkPtr first = all_reduce_async(large, group);
      all_reduce(small, group);
      first->wait();
    }
    EXPECT_TRUE(large.eq(2).all().item<bool>());
    EXPECT_TRUE(small.eq(2).all().item<bool>());
  });
}

// Rank 0 waits for nothing, and computes; its thread moves what rank 1 waits for.
TEST(ShmBackend, MovesOnWhileNobodyWaits) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = shm_group(context);
    const at::Tensor tensor = at::ones({3'000'000});
    const WorkPtr work = all_reduce_async(tensor, group);
    if (context.rank == 1) {
      work->wait();
      context.store->set("done", std::vector<std::uint8_t>{1});
    }
    context.store->get("done");
    work->wait();
    EXPECT_TRUE(tensor.eq(2).all().item<bool>());
  });
}

TEST(ShmBackend, SaysWhatItCannotDo) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = shm_group(context);
    const int peer = 1 - context.rank;
    testing::expect_error("has the tags 0 to 3, not 4",
                          [&] { send(at::ones({1}), peer, group, 4); });
    testing::expect_error("moves dense CPU tensors", [&] {
      send(at::ones({4, 4}).select(1, 0), peer, group);
    });
    if (context.rank == 0) {
      send(at::ones({2}), peer, group);
    } else {
      testing::expect_error("rank 0 sent 8 bytes, and 12 are expected",
                            [&] { recv(at::ones({3}), peer, group); });
    }
  });
}

TEST(ShmBackend, SaysThatARankHasEnded) {
  const RankReports reports = fork_ranks({.world_size = 2}, [](RankContext& context) {
    const ProcessGroupPtr group = shm_group(context);
    if (context.rank == 0) {
      all_reduce(at::ones({3}), group);
    }
  });
  EXPECT_FALSE(reports.ok());
  EXPECT_EQ(reports.culprit, 0);
  testing::expect_contains(reports.describe(),
                           "rank 1 has ended, and rank 0's all-reduce needs it");
}

}  // namespace
}  // namespace ddp
