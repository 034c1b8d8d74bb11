// The all-reduces that stage 05's ring is compared with: results, and times as their headers say.
//
// The baseline of stage 04 computes batch normalization over the batches of all ranks, and sends what
// torch.nn.SyncBatchNorm sends. On the CPU and, with --device cuda, with the native operators.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "baselines/all_reduces.h"
#include "baselines/batch_norms.h"
#include "common/ranks.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/compare.h"
#include "grader/settings.h"

namespace ddp {
namespace {

using testing::Rank;

const std::vector<AllReduce> kGiven = {all_reduce_named("butterfly"),
                                       all_reduce_named("recursive doubling"),
                                       all_reduce_named("tree")};

void for_each_world(const std::function<void(Rank&, const AllReduce&)>& body) {
  for (const int world_size : {1, 2, 3, 4, 7, 8, 11}) {
    testing::run_ranks({.ranks = world_size}, [&](Rank& rank) {
      for (const AllReduce& given : kGiven) {
        SCOPED_TRACE(given.name);
        body(rank, given);
      }
    });
  }
}

at::Tensor random_of(int rank, at::IntArrayRef shape) {
  at::manual_seed(rank);
  return at::randn(shape);
}

TEST(GivenAllReduces, SumsAndAverages) {
  for_each_world([](Rank& rank, const AllReduce& given) {
    const std::int64_t ranks = rank.world_size();
    for (const std::int64_t elements : {0, 5, 100}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kLong, at::kBFloat16}) {
        const at::Tensor tensor = (at::arange(elements) % 7 + rank.rank()).to(dtype);
        const at::Tensor sum =
            (at::arange(elements) % 7 * ranks + ranks * (ranks - 1) / 2).to(dtype);
        const void* storage = tensor.data_ptr();
        given.run(tensor, rank.group(), ReduceOp::kSum);
        EXPECT_TRUE(at::equal(tensor, sum)) << tensor << "instead of" << sum;
        EXPECT_EQ(tensor.data_ptr(), storage);
      }
    }
    const at::Tensor tensor = at::full({3, 2}, rank.rank(), at::kDouble);
    given.run(tensor, rank.group(), ReduceOp::kAverage);
    EXPECT_TRUE(tensor.eq(static_cast<double>(ranks - 1) / 2).all().item<bool>()) << tensor;
  });
}

TEST(GivenAllReduces, AllRanksGetTheSameBits) {
  for_each_world([](Rank& rank, const AllReduce& given) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const at::Tensor tensor = random_of(rank.rank(), {101});
      given.run(tensor, rank.group(), op);
      const at::Tensor all = all_gather(tensor.view(at::kInt), rank.group());
      EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
    }
  });
}

TEST(GivenAllReduces, TensorsThatAreNotContiguousOrRequireAGradient) {
  for_each_world([](Rank& rank, const AllReduce& given) {
    const at::Tensor whole = at::zeros({4, 6});
    const at::Tensor part = whole.slice(/*dim=*/1, 0, 6, /*step=*/2).t();
    part.fill_(rank.rank() + 1);
    given.run(part, rank.group(), ReduceOp::kSum);
    const int sum = rank.world_size() * (rank.world_size() + 1) / 2;
    EXPECT_TRUE(part.eq(sum).all().item<bool>()) << part;
    EXPECT_EQ(whole.sum().item<int>(), 12 * sum);
    const at::Tensor parameter = at::ones({2}).set_requires_grad(true);
    given.run(parameter, rank.group(), ReduceOp::kSum);
    EXPECT_TRUE(parameter.is_leaf());
  });
}

TEST(GivenAllReduces, RefuseBadArgumentsBeforeAnyMessage) {
  const Evidence evidence = testing::run_ranks({.ranks = 3}, [](Rank& rank) {
    for (const AllReduce& given : kGiven) {
      const auto refused = [&](const at::Tensor& tensor, const ProcessGroupPtr& group,
                               ReduceOp op) {
        EXPECT_THROW(given.run(tensor, group, op), c10::Error);
      };
      refused({}, rank.group(), ReduceOp::kSum);
      refused(at::ones({2}), nullptr, ReduceOp::kSum);
      refused(at::ones({2}), rank.group(), ReduceOp::kMax);
      refused(at::ones({2}, at::kLong), rank.group(), ReduceOp::kAverage);
    }
  });
  EXPECT_TRUE(testing::launches_of(evidence, 1).empty());
}

// The number of terms alpha + (bytes sent) * beta in the time of an all-reduce.
std::int64_t messages_in_a_row(const std::string& name, int world_size) {
  const auto below = static_cast<int>(std::floor(std::log2(world_size)));
  const auto above = static_cast<int>(std::ceil(std::log2(world_size)));
  if (name == "recursive doubling") {
    return below == above ? below : below + 2;
  }
  if (name == "tree") {
    return 2 * above;
  }
  return 2 * (world_size - 1);
}

TEST(GivenAllReduces, TakeTheTimeOfTheirFormulas) {
  constexpr std::int64_t kChunkBytes = 40;
  for (int world_size = 1; world_size <= 17; ++world_size) {
    const Evidence evidence = testing::run_ranks({.ranks = world_size}, [](Rank& rank) {
      const at::Tensor tensor = at::ones({rank.world_size() * kChunkBytes / 4});
      int step = 0;
      for (const AllReduce& given : kGiven) {
        rank.client().go_to({.phase = Phase::kFinish, .step = step++});
        given.run(tensor, rank.group(), ReduceOp::kSum);
      }
    });
    const VirtualTime time(evidence, {.alpha_ns = 1'000, .beta_ns_per_byte = 2},
                           [](const Seen&, int) { return std::int64_t{0}; });
    int step = 0;
    for (const AllReduce& given : kGiven) {
      const bool chunks = std::string(given.name) == "butterfly";
      const std::int64_t bytes = chunks ? kChunkBytes : world_size * kChunkBytes;
      EXPECT_EQ(time.step_ns(step++),
                messages_in_a_row(given.name, world_size) * (1'000 + 2 * bytes))
          << given.name << ", " << world_size << " ranks";
    }
  }
}

using testing::is_close;

constexpr std::int64_t kChannels = 5;
constexpr double kEps = 1e-5;

// Samples of each rank; the last of several ranks has twice as many.
std::vector<std::int64_t> uneven_shards(int world_size) {
  std::vector<std::int64_t> shards(world_size, 3);
  shards.back() = 6;
  return shards;
}

struct Case {
  std::vector<std::int64_t> shards;
  std::vector<std::int64_t> positions = {};  // the sizes after [N, C]
  at::ScalarType dtype = at::kDouble;
  bool affine = true;
  bool channels_last = false;
  const char* baseline = kBaselineBatchNorm;
};

double tolerance_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-10 : dtype == at::kFloat ? 1e-4 : 4e-2;
}

at::Tensor random(const std::vector<std::int64_t>& shape, std::uint64_t salt) {
  at::Generator generator = at::detail::createCPUGenerator(testing::settings().seed + salt);
  return at::randn(shape, generator, at::kDouble);
}

// The whole batch and its batch normalization, in float64 on the CPU. Upstream gradients are zero
// for the second half of the batch.
class Oracle {
 public:
  explicit Oracle(const Case& each) : case_(each) {
    const std::int64_t samples = std::reduce(each.shards.begin(), each.shards.end());
    std::vector<std::int64_t> shape = {samples, kChannels};
    shape.insert(shape.end(), each.positions.begin(), each.positions.end());
    // Rounded like the ranks' input, so that only the arithmetic is compared.
    input = rounded(random(shape, 1) * 2 + 3).set_requires_grad(true);
    gradient = rounded(random(shape, 2));
    gradient.narrow(0, samples - samples / 2, samples / 2).zero_();
    weight = random({kChannels}, 3).to(at::kFloat).to(at::kDouble).set_requires_grad(true);
    bias = random({kChannels}, 4).to(at::kFloat).to(at::kDouble).set_requires_grad(true);
    const at::Tensor none;
    output = at::batch_norm(input, each.affine ? weight : none, each.affine ? bias : none,
                            running_mean, running_var, /*training=*/true, /*momentum=*/0.1, kEps,
                            /*cudnn_enabled=*/false);
    output.backward(gradient);
  }

  // Rank `rank`'s part of a tensor of the whole batch.
  at::Tensor shard(const at::Tensor& whole, int rank) const {
    const std::int64_t begin =
        std::reduce(case_.shards.begin(), case_.shards.begin() + rank, std::int64_t{0});
    const at::Tensor part = whole.detach()
                                .narrow(0, begin, case_.shards[rank])
                                .to(at::device(testing::settings().device).dtype(case_.dtype));
    return case_.channels_last ? part.contiguous(at::MemoryFormat::ChannelsLast)
                               : part.contiguous();
  }

  at::Tensor input, gradient, weight, bias, output;
  at::Tensor running_mean = at::zeros({kChannels}, at::kDouble);
  at::Tensor running_var = at::ones({kChannels}, at::kDouble);

 private:
  at::Tensor rounded(const at::Tensor& values) const {
    return values.to(case_.dtype).to(at::kDouble);
  }

  const Case case_;
};

std::shared_ptr<BatchNorm> make_baseline(const BatchNormOptions& options, Rank& rank,
                                         const char* name = kBaselineBatchNorm) {
  auto baseline = make_batch_norm(name, options, rank.group());
  baseline->to(testing::settings().device);
  return baseline;
}

// `terms`: as many of about 1 were added up, which may leave less than one of them.
void expect_near(const std::string& name, const at::Tensor& actual, const at::Tensor& expected,
                 const Case& each, std::int64_t terms = 1) {
  const double tolerance = tolerance_of(each.dtype) * std::sqrt(static_cast<double>(terms));
  EXPECT_TRUE(is_close({.name = name}, actual.cpu().to(at::kDouble), expected.detach(), tolerance));
}

at::Tensor sum_over_ranks(const at::Tensor& gradient, const at::Tensor& like, Rank& rank) {
  at::Tensor sum = gradient.defined() ? gradient.clone() : at::zeros_like(like);
  all_reduce(sum, rank.group());
  return sum;
}

// One step of training, compared with the oracle.
void expect_oracles(Rank& rank, const Case& each) {
  const Oracle oracle(each);
  const auto baseline =
      make_baseline({.num_features = kChannels, .affine = each.affine}, rank, each.baseline);
  if (each.affine) {
    baseline->weight.detach().copy_(oracle.weight.detach());
    baseline->bias.detach().copy_(oracle.bias.detach());
  }
  if (each.dtype == at::kDouble) {
    baseline->to(at::kDouble);
  }
  const at::Tensor input = oracle.shard(oracle.input, rank.rank()).set_requires_grad(true);
  const at::Tensor output = baseline->forward(input);
  EXPECT_EQ(output.scalar_type(), each.dtype);
  output.backward(oracle.shard(oracle.gradient, rank.rank()));
  const auto own_part = [&](const at::Tensor& whole) {
    return oracle.shard(whole, rank.rank()).cpu().to(at::kDouble);
  };
  expect_near("the output", output.detach(), own_part(oracle.output), each);
  if (each.shards[rank.rank()] > 0) {
    expect_near("the input's gradient", input.grad(), own_part(oracle.input.grad()), each);
  }
  if (each.affine) {
    const std::int64_t terms = oracle.input.numel() / kChannels;
    expect_near("the weight's gradient",
                sum_over_ranks(baseline->weight.grad(), baseline->weight.detach(), rank),
                oracle.weight.grad(), each, terms);
    expect_near("the bias's gradient",
                sum_over_ranks(baseline->bias.grad(), baseline->bias.detach(), rank),
                oracle.bias.grad(), each, terms);
  }
  expect_near("running_mean", baseline->running_mean, oracle.running_mean, each);
  expect_near("running_var", baseline->running_var, oracle.running_var, each);
}

TEST(SyncBatchNormBaseline, EqualsBatchNormOverTheConcatenatedBatch) {
  testing::run_worlds({1, 2, 3, 4}, [](Rank& rank) {
    for (at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      for (bool affine : {true, false}) {
        for (const std::vector<std::int64_t>& positions :
             std::vector<std::vector<std::int64_t>>{{}, {7}, {4, 3}}) {
          expect_oracles(rank, {.shards = uneven_shards(rank.world_size()),
                                .positions = positions,
                                .dtype = dtype,
                                .affine = affine});
        }
      }
    }
  });
}

TEST(SyncBatchNormBaseline, TakesChannelsLastAndLowPrecision) {
  testing::run_worlds({1, 2, 3}, [](Rank& rank) {
    const std::vector<std::int64_t> shards = uneven_shards(rank.world_size());
    expect_oracles(rank, {.shards = shards, .positions = {4, 3}, .channels_last = true});
    for (at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      expect_oracles(rank, {.shards = shards, .positions = {5}, .dtype = dtype});
    }
  });
}

TEST(SyncBatchNormBaseline, ARankWithoutSamplesTakesPart) {
  testing::run_worlds({2, 3, 4}, [](Rank& rank) {
    std::vector<std::int64_t> shards = uneven_shards(rank.world_size());
    shards[0] = 0;
    expect_oracles(rank, {.shards = shards, .positions = {2, 2}});
    expect_oracles(rank, {.shards = shards, .dtype = at::kFloat, .affine = false});
  });
}

TEST(SyncBatchNormBaseline, MomentumIsANumberOrACumulativeAverage) {
  testing::run_worlds({1, 2}, [](Rank& rank) {
    for (std::optional<double> momentum : {std::optional(0.25), std::optional<double>()}) {
      const auto baseline = make_baseline({.num_features = kChannels, .momentum = momentum}, rank);
      at::Tensor expected = at::zeros({kChannels}, at::kDouble);
      for (int step = 1; step <= 3; ++step) {
        const at::Tensor batch = random({4 * rank.world_size(), kChannels}, step) + step;
        baseline->forward(batch.narrow(0, 4 * rank.rank(), 4)
                              .to(at::device(testing::settings().device).dtype(at::kFloat)));
        expected = expected.lerp(batch.mean(0), momentum.value_or(1.0 / step));
      }
      expect_near("running_mean", baseline->running_mean, expected,
                  {.shards = {}, .dtype = at::kFloat});
      EXPECT_EQ(baseline->num_batches_tracked.item<std::int64_t>(), 3);
    }
  });
}

std::vector<std::int64_t> elements_sent(const Evidence& evidence) {
  std::vector<std::int64_t> elements;
  for (const Seen& launch : testing::launches_of(evidence, 0)) {
    elements.push_back(launch.bytes / static_cast<std::int64_t>(sizeof(float)));
  }
  return elements;
}

TEST(SyncBatchNormBaseline, CommunicatesOnceEachWay) {
  for (const bool input_needs_gradient : {true, false}) {
    const Evidence evidence = testing::run_ranks({.ranks = 4}, [&](Rank& rank) {
      const auto baseline = make_baseline({.num_features = kChannels}, rank);
      const at::Tensor input = at::rand({3, kChannels}, testing::settings().device);
      baseline->forward(input.set_requires_grad(input_needs_gradient)).sum().backward();
    });
    std::vector<std::int64_t> expected = {2 * kChannels + 1};
    if (input_needs_gradient) {
      expected.push_back(2 * kChannels);
    }
    EXPECT_EQ(elements_sent(evidence), expected);
  }
}

TEST(SyncBatchNormBaseline, EvaluationUsesRunningStatisticsAndCommunicatesNothing) {
  const Evidence evidence = testing::run_ranks({}, [](Rank& rank) {
    const at::Tensor input = at::rand({3, kChannels}, testing::settings().device) + rank.rank();
    for (bool track : {true, false}) {
      const auto baseline =
          make_baseline({.num_features = kChannels, .track_running_stats = track}, rank);
      baseline->forward(input);
      baseline->eval();
      const at::Tensor expected = at::batch_norm(
          input, baseline->weight, baseline->bias, baseline->running_mean, baseline->running_var,
          /*training=*/!track, /*momentum=*/0, kEps, /*cudnn_enabled=*/true);
      EXPECT_TRUE(testing::is_bitwise_equal({.name = "the output"},
                                            baseline->forward(input).detach(), expected.detach()));
      if (track) {
        EXPECT_EQ(baseline->num_batches_tracked.item<std::int64_t>(), 1);
      }
    }
  });
  EXPECT_EQ(testing::launches_of(evidence, 0).size(), 2);  // of training
}

TEST(SyncBatchNormBaseline, RefusesANullGroup) {
  testing::in_child([] {
    EXPECT_THROW(make_sync_batch_norm_baseline({.num_features = kChannels}, nullptr), c10::Error);
  });
}

}  // namespace
}  // namespace ddp
