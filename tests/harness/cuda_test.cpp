// Tests that need a GPU run if there is one; otherwise they are skipped and say why.
#include "ddp/backends/cuda.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ddp/backends/host_staged_backend.h"
#include "ddp/meters/device_timer.h"
#include "group_checks.h"
#include "support/ranks.h"

namespace ddp {
namespace {

constexpr auto kCudaTimeout = std::chrono::seconds(60);
constexpr auto kCudaDeadline = std::chrono::seconds(120);  // a first use of a GPU is slow

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_gpu(); !reason.empty()) {
      GTEST_SKIP() << "skipped: " << reason;
    }
  }
};

TEST(CudaAbsent, IsSaidInOneLine) {
  if (cuda_built() && visible_gpus() > 0) {
    GTEST_SKIP() << "skipped: there is a GPU";
  }
  EXPECT_FALSE(why_no_gpu().empty());
  testing::expect_plain_ranks_pass({.world_size = 1}, [](RankContext& context) {
    EXPECT_THROW(device_of_rank(at::kCUDA, context), c10::Error);
    EXPECT_TRUE(device_of_rank(at::kCPU, context).is_cpu());
    const BackendPtr backend = make_device_backend(at::kCPU, context);
    EXPECT_EQ(backend->getBackendName(), "gloo");
  });
}

TEST_F(Cuda, NcclDoesAllCollectivesInAWorldOfOneRankAGpu) {
  const int world_size = std::min(visible_gpus(), 4);
  testing::expect_plain_ranks_pass(
      {.world_size = world_size, .deadline = kCudaDeadline}, [](RankContext& context) {
        const at::Device device = device_of_rank(at::kCUDA, context);
        const BackendPtr backend = make_device_backend(device, context, kCudaTimeout);
        EXPECT_EQ(backend->getBackendName(), "nccl");
        const ProcessGroupPtr group = make_process_group(backend, context.store);
        testing::check_group(group, device);
      });
}

TEST_F(Cuda, RanksThatShareAGpuGoThroughTheHost) {
  testing::expect_plain_ranks_pass(
      {.world_size = visible_gpus() + 1, .deadline = kCudaDeadline}, [](RankContext& context) {
        const at::Device device = device_of_rank(at::kCUDA, context);
        const BackendPtr backend = make_device_backend(device, context, kCudaTimeout);
        EXPECT_NE(dynamic_cast<HostStagedBackend*>(backend.get()), nullptr);
        const ProcessGroupPtr group = make_process_group(backend, context.store);
        testing::check_group(group, device);
      });
}

// The input is ready only after long work in the caller's stream, and the result is used there
// immediately.
TEST_F(Cuda, StagingRespectsTheCallersStream) {
  testing::expect_plain_ranks_pass(
      {.world_size = 2, .deadline = kCudaDeadline}, [](RankContext& context) {
        const at::Device device = device_of_rank(at::kCUDA, context);
        const ProcessGroupPtr group = make_process_group(
            c10::make_intrusive<HostStagedBackend>(make_gloo_backend(context, kCudaTimeout)),
            context.store);
        at::Tensor slow = at::ones({4096, 4096}, device);
        for (int i = 0; i < 20; ++i) {
          slow = at::mm(slow, slow).div_(4096);  // stays all ones
        }
        const at::Tensor result = slow.slice(0, 0, 64).contiguous();
        all_reduce(result, group);
        EXPECT_TRUE(result.mul(2).eq(4).all().item<bool>());
      });
}

TEST_F(Cuda, EventsTimeTheDeviceAndNotTheHost) {
  testing::expect_plain_ranks_pass({.world_size = 1, .deadline = kCudaDeadline},
                                   [](RankContext& context) {
                                     const at::Device device = device_of_rank(at::kCUDA, context);
                                     const auto timer = make_device_timer(device);
                                     const at::Tensor matrix = at::ones({4096, 4096}, device);
                                     at::mm(matrix, matrix);  // the first use is slow
                                     double seconds[2];
                                     for (const int work : {0, 1}) {
                                       timer->start();
                                       for (int i = 0; i < 1 + 20 * work; ++i) {
                                         at::mm(matrix, matrix);
                                       }
                                       timer->stop();
                                       seconds[work] = timer->seconds();
                                     }
                                     EXPECT_GT(seconds[0], 0);
                                     EXPECT_GT(seconds[1], 5 * seconds[0]);
                                   });
}

}  // namespace
}  // namespace ddp
