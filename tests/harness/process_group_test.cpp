// Process groups over any backend: our helpers, c10d's own calls, and c10d::Reducer.
#include "ddp/ranks/process_group.h"

#include <gtest/gtest.h>

#include "ddp/backends/host_staged_backend.h"
#include "ddp/ranks/launch.h"
#include "group_checks.h"
#include "support/ranks.h"

namespace ddp {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);

// An even and an odd world size, and a single rank.
void for_worlds(const RankBody& body) {
  for (const int world_size : {1, 2, 3}) {
    testing::expect_plain_ranks_pass({.world_size = world_size}, body);
  }
}

TEST(ProcessGroup, GlooDoesAllCollectives) {
  for_worlds(
      [](RankContext& context) { testing::check_collectives(make_gloo_group(context), at::kCPU); });
}

TEST(ProcessGroup, GlooCarriesReducer) {
  for_worlds(
      [](RankContext& context) { testing::check_reducer(make_gloo_group(context), at::kCPU); });
}

// Copies host tensors although it need not: the whole path of a GPU, without the GPU.
ProcessGroupPtr staged_group(const RankContext& context) {
  return make_process_group(c10::make_intrusive<HostStagedBackend>(
                                make_gloo_backend(context, kTimeout), Staging::kAllTensors),
                            context.store);
}

TEST(HostStagedBackend, DoesAllCollectives) {
  for_worlds(
      [](RankContext& context) { testing::check_collectives(staged_group(context), at::kCPU); });
}

TEST(HostStagedBackend, CarriesReducer) {
  for_worlds([](RankContext& context) { testing::check_reducer(staged_group(context), at::kCPU); });
}

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

}  // namespace
}  // namespace ddp
