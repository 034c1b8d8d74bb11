// On which cores ranks and Gloo's threads run, and who has to wait for whom.
#include "ddp/ranks/cores.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>

#include "ddp/collectives.h"
#include "ddp/ranks/launch.h"
#include "support/ranks.h"

namespace ddp {
namespace {

TEST(GlooBackend, ItsDevicesThreadTakesNoCoreFromOthers) {
  testing::expect_plain_ranks_pass({.world_size = 1}, [](RankContext& context) {
    const ProcessGroupPtr group = make_gloo_group(context);
    int patient = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      patient += sched_getscheduler(std::stoi(thread.path().filename())) == SCHED_BATCH ? 1 : 0;
    }
    EXPECT_EQ(patient, 1);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER) << "the rank's own thread is as it was";
  });
}

// The cores that this thread may use: 1 for each that it may.
at::Tensor allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  at::Tensor cores = at::zeros({CPU_SETSIZE}, at::kInt);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    cores[core] = CPU_ISSET(core, &allowed) ? 1 : 0;
  }
  return cores;
}

TEST(Cores, EachRankHasItsOwn) {
  if (allowed_cores().sum().item<int>() < 2) {
    GTEST_SKIP() << "this process may use one core alone";
  }
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const at::Tensor before = allowed_cores();
    const ProcessGroupPtr group = make_gloo_group(context);
    keep_to_own_cores(context.rank, context.world_size);
    const at::Tensor own = allowed_cores();
    EXPECT_EQ(own.sum().item<int>(), before.sum().item<int>() / 2);
    const at::Tensor users = own.clone();
    all_reduce(users, group);
    EXPECT_EQ(users.max().item<int>(), 1) << "two ranks share a core";
    EXPECT_TRUE(users.le(before).all().item<bool>()) << "a core that the process may not use";
  });
}

TEST(Cores, MoreRanksThanCoresShareThem) {
  const at::Tensor before = allowed_cores();
  keep_to_own_cores(0, CPU_SETSIZE + 1);
  EXPECT_TRUE(allowed_cores().equal(before));
}

}  // namespace
}  // namespace ddp
