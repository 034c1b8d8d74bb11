// Process groups over each backend: our helpers, c10d's own calls, and c10d::Reducer. What needs a GPU runs if
// there is one, and otherwise is skipped and says why.
#include "ddp/launching/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "common/checks.h"
#include "common/ranks.h"
#include "ddp/backends/cuda.h"
#include "ddp/backends/host_staged_backend.h"
#include "ddp/baselines/reducer_baseline.h"
#include "ddp/launching/launch.h"
#include "ddp/libtorch_versions.h"
#include "ddp/meters/device_timer.h"

namespace ddp {
namespace {

struct Setting {
  ProcessGroupPtr group;
  at::TensorOptions options;  // float64 on the device

  int rank() const { return group->getRank(); }
  int world() const { return group->getSize(); }
  /// 1 + 2 + ... + world
  double sum_of_ranks() const { return world() * (world() + 1) / 2.0; }
  /// This rank's input: its number, counted from 1.
  at::Tensor mine(at::IntArrayRef shape) const { return at::full(shape, rank() + 1.0, options); }
};

// All values are small, so only the rounding of a division by the world size may differ.
void expect_all(const at::Tensor& tensor, double value, const char* what) {
  EXPECT_TRUE(tensor.sub(value).abs().le(1e-14 * std::abs(value)).all().item<bool>())
      << what << ": " << tensor << " expected " << value;
}

void check_reductions(const Setting& s) {
  const at::Tensor sum = s.mine({3, 2});
  all_reduce(sum, s.group);
  expect_all(sum, s.sum_of_ranks(), "sum");

  const at::Tensor average = s.mine({5});
  all_reduce(average, s.group, ReduceOp::kAverage);
  expect_all(average, s.sum_of_ranks() / s.world(), "average");

  const at::Tensor most = s.mine({5});
  all_reduce(most, s.group, ReduceOp::kMax);
  expect_all(most, s.world(), "maximum");

  const at::Tensor integers = s.mine({4}).to(at::kLong);
  all_reduce(integers, s.group);
  expect_all(integers, s.sum_of_ranks(), "integers");
  EXPECT_THROW(all_reduce(integers, s.group, ReduceOp::kAverage), c10::Error);

  const at::Tensor column_major = s.mine({4, 3}).t();
  all_reduce(column_major, s.group);
  expect_all(column_major, s.sum_of_ranks(), "transposed");

  const at::Tensor scalar = s.mine({});
  all_reduce(scalar, s.group);
  expect_all(scalar, s.sum_of_ranks(), "scalar");
}

// Several at once; each is completed in a different way.
void check_async(const Setting& s) {
  const at::Tensor by_wait = s.mine({1000});
  const at::Tensor by_future = s.mine({1000});
  const at::Tensor by_both = s.mine({1000});
  const WorkPtr first = all_reduce_async(by_wait, s.group);
  const WorkPtr second = all_reduce_async(by_future, s.group);
  const WorkPtr third = all_reduce_async(by_both, s.group);
  const auto future = third->getFuture();
  second->getFuture()->wait();
  expect_all(by_future, s.sum_of_ranks(), "by future");
  third->wait();
  future->wait();
  expect_all(by_both, s.sum_of_ranks(), "by both");
  ASSERT_TRUE(future->value().isTensorList());
  EXPECT_TRUE(future->value().toTensorVector().at(0).is_same(by_both)) << "not the caller's tensor";
  first->wait();
  EXPECT_TRUE(first->isCompleted());
  expect_all(by_wait, s.sum_of_ranks(), "by wait");
}

void check_distribution(const Setting& s) {
  const int root = s.world() - 1;
  const at::Tensor copied = s.mine({7});
  broadcast(copied, s.group, root);
  expect_all(copied, root + 1, "broadcast");

  const at::Tensor gathered = all_gather(s.mine({2, 3}), s.group);
  ASSERT_EQ(gathered.sizes(), at::IntArrayRef({s.world(), 2, 3}));
  for (int rank = 0; rank < s.world(); ++rank) {
    expect_all(gathered[rank], rank + 1, "all-gather");
  }
  ASSERT_EQ(all_gather(s.mine({}), s.group).sizes(), at::IntArrayRef({s.world()}));

  at::Tensor input = s.mine({2 * s.world()});
  at::Tensor chunk = at::empty({2}, s.options);
  ((*s.group).*kReduceScatterSingle)(chunk, input, {})->wait();
  expect_all(chunk, s.sum_of_ranks(), "reduce-scatter");
  barrier(s.group);
}

// Every rank sends to the right: blocking sends would never complete.
void check_messages(const Setting& s) {
  if (s.world() == 1) {
    return;
  }
  const int right = (s.rank() + 1) % s.world();
  const int left = (s.rank() + s.world() - 1) % s.world();
  const at::Tensor received = at::empty({6}, s.options);
  const WorkPtr sending = send_async(s.mine({6}), right, s.group, /*tag=*/3);
  recv(received, left, s.group, /*tag=*/3);
  sending->wait();
  expect_all(received, left + 1, "message");
}

void check_reducer(const Setting& s) {
  std::vector<at::Tensor> parameters;
  parameters.reserve(4);
  for (int i = 0; i < 4; ++i) {
    parameters.push_back(at::full({3}, i + 1.0, s.options).set_requires_grad(true));
  }
  ReducerBaseline reducer(parameters, {}, s.group, {.first_bucket_bytes = 48, .cap_bytes = 48});
  for (int step = 0; step < 3; ++step) {
    reducer.before_forward();
    at::Tensor loss = at::zeros({}, s.options);
    for (const at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = at::Tensor();
      loss = loss + (s.rank() + 1.0) * parameter.pow(2).sum();
    }
    reducer.before_backward();
    loss.backward();
    for (int i = 0; i < 4; ++i) {  // the mean over ranks of (rank + 1) 2 p
      expect_all(parameters[i].grad(), 2.0 * (i + 1) * s.sum_of_ranks() / s.world(), "gradient");
    }
  }
}

// What every process group must do, whatever its backend and device: all operations of
// collectives.h, in place and not, blocking and not, by handle and by future, on tensors of
// several layouts; and training steps with libtorch's own c10d::Reducer average the gradients. All
// ranks must call it.
void check_group(const ProcessGroupPtr& group, const at::Device& device) {
  const Setting setting{group, at::TensorOptions(at::kDouble).device(device)};
  check_reductions(setting);
  check_async(setting);
  check_distribution(setting);
  check_messages(setting);
  check_reducer(setting);
}

constexpr auto kTimeout = std::chrono::seconds(20);

ProcessGroupPtr gloo_group(const RankContext& context) { return make_gloo_group(context); }

// Copies host tensors although it need not: the whole path of a GPU, without the GPU.
ProcessGroupPtr staged_group(const RankContext& context) {
  return make_process_group(c10::make_intrusive<HostStagedBackend>(
                                make_gloo_backend(context, kTimeout), Staging::kAllTensors),
                            context.store);
}

// Even and odd world sizes, and a single rank.
void for_worlds(const RankFunction& body) {
  for (const int world_size : {1, 2, 3, 4}) {
    testing::expect_plain_ranks_pass({.world_size = world_size}, body);
  }
}

using NamedGroup = std::pair<const char*, ProcessGroupPtr (*)(const RankContext&)>;

class ProcessGroups : public ::testing::TestWithParam<NamedGroup> {};

TEST_P(ProcessGroups, DoAllOperationsAndCarryTheReducer) {
  for_worlds([](RankContext& context) { check_group(GetParam().second(context), at::kCPU); });
}

INSTANTIATE_TEST_SUITE_P(All, ProcessGroups,
                         ::testing::Values(NamedGroup("gloo", gloo_group),
                                           NamedGroup("host_staged", staged_group)),
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
        check_group(group, device);
      });
}

TEST_F(Cuda, RanksThatShareAGpuGoThroughTheHost) {
  testing::expect_plain_ranks_pass(
      {.world_size = visible_gpus() + 1, .deadline = kCudaDeadline}, [](RankContext& context) {
        const at::Device device = device_of_rank(at::kCUDA, context);
        const BackendPtr backend = make_device_backend(device, context, kCudaTimeout);
        EXPECT_NE(dynamic_cast<HostStagedBackend*>(backend.get()), nullptr);
        const ProcessGroupPtr group = make_process_group(backend, context.store);
        check_group(group, device);
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
