// The baseline: libtorch's own gradient synchronizer, c10d::Reducer, with the referee's group. Its
// gradients must be those by which stages are graded.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "common/ranks.h"
#include "ddp/baselines/reducer_baseline.h"
#include "ddp/gradient_hooks.h"
#include "ddp/models/toy_models.h"
#include "grader/compare.h"
#include "grader/settings.h"
#include "grader/toy_scenarios.h"

namespace ddp {
namespace {

using testing::Rank;
using Buckets = std::vector<std::vector<std::size_t>>;

constexpr std::int64_t kBucketBytes = 512;
constexpr int kSteps = 4;

ReducerBaselineOptions small_buckets(bool as_view = false) {
  return {.first_bucket_bytes = kBucketBytes,
          .cap_bytes = kBucketBytes,
          .gradient_as_bucket_view = as_view};
}

ToyOptions toy_options(Rank& rank) {
  return {.rank = rank.rank(), .seed = testing::settings().seed};
}

// A rank's model with its baseline, and the training steps of both.
class BaselineTraining {
 public:
  BaselineTraining(Rank& rank, ToyKind kind, const ReducerBaselineOptions& baseline_options)
      : rank_(rank),
        options_(toy_options(rank)),
        model_(make_toy_model(kind, options_)),
        oracle_(kind, options_, rank.world_size()),
        baseline_(tensors_of(model_->named_parameters()), tensors_of(model_->named_buffers()),
                  rank.group(), baseline_options) {
    rank.client().name(model_->named_parameters());
  }

  void step() {
    baseline_.before_forward();
    const at::Tensor loss = toy_loss(*model_, make_toy_batch(options_, rank_.rank(), steps_));
    baseline_.before_backward();
    loss.backward();
  }

  // Checks the last step's gradients, and sets them to none.
  void expect_oracles_gradients() {
    const auto expected = oracle_.gradients(steps_++, rank_.rank());
    const auto trainable = testing::trainable(model_->named_parameters());
    ASSERT_EQ(trainable.size(), expected.size());
    for (std::size_t i = 0; i < trainable.size(); ++i) {
      EXPECT_TRUE(testing::is_close(
          {.name = trainable[i].name, .world_size = rank_.world_size(), .local = expected[i].local},
          trainable[i].tensor.grad(), expected[i].mean, 1e-12));
      trainable[i].tensor.mutable_grad() = at::Tensor();
    }
  }

  const Model& model() const { return *model_; }
  const ReducerBaseline& baseline() const { return baseline_; }

 private:
  Rank& rank_;
  ToyOptions options_;
  std::unique_ptr<Model> model_;
  testing::Oracle oracle_;
  ReducerBaseline baseline_;
  int steps_ = 0;
};

TEST(Reducer, GradientsEqualTheOraclesForEveryModelWithAllGradients) {
  testing::run_worlds({1, 2, 4}, [](Rank& rank) {
    for (ToyKind kind :
         {ToyKind::kMlp, ToyKind::kFrozenBias, ToyKind::kTiedWeights, ToyKind::kBatchNorm}) {
      for (bool as_view : {false, true}) {
        SCOPED_TRACE(to_string(kind) + (as_view ? ", as views" : ""));
        BaselineTraining training(rank, kind, small_buckets(as_view));
        for (int step = 0; step < kSteps; ++step) {
          training.step();
          training.expect_oracles_gradients();
        }
      }
    }
  });
}

TEST(Reducer, GradientsAsViewsStayInTheirBuckets) {
  testing::run_ranks({}, [](Rank& rank) {
    for (bool as_view : {false, true}) {
      BaselineTraining training(rank, ToyKind::kMlp, small_buckets(as_view));
      training.step();
      const auto parameters = training.model().named_parameters();
      EXPECT_EQ(parameters[0].tensor.grad().is_view(), as_view);
    }
  });
}

std::vector<std::size_t> members_of(const Buckets& buckets) {
  std::vector<std::size_t> members;
  for (const auto& bucket : buckets) {
    members.insert(members.end(), bucket.begin(), bucket.end());
  }
  return members;
}

TEST(Reducer, BucketsContainTiedWeightsOnceAndNothingFrozen) {
  testing::run_ranks({}, [](Rank& rank) {
    for (ToyKind kind : {ToyKind::kFrozenBias, ToyKind::kTiedWeights}) {
      const BaselineTraining training(rank, kind, small_buckets());
      const auto parameters = training.model().named_parameters();
      std::vector<at::Tensor> left;
      for (const NamedTensor& parameter : testing::trainable(parameters)) {
        left.push_back(parameter.tensor);
      }
      for (std::size_t index : members_of(training.baseline().buckets())) {
        EXPECT_EQ(std::erase_if(left,
                                [&](const at::Tensor& tensor) {
                                  return tensor.is_same(parameters[index].tensor);
                                }),
                  1)
            << parameters[index].name;
      }
      EXPECT_TRUE(left.empty());
    }
  });
}

// One bucket after another, each closed as soon as it is full.
Buckets fill(const std::vector<std::size_t>& order, const std::vector<NamedTensor>& parameters,
             const ReducerBaselineOptions& options) {
  Buckets buckets;
  std::size_t left = 0;  // bytes until the open bucket is full; 0: none is open
  for (std::size_t index : order) {
    if (left == 0) {
      left = buckets.empty() ? options.first_bucket_bytes : options.cap_bytes;
      buckets.emplace_back();
    }
    buckets.back().push_back(index);
    left -= std::min(left, parameters[index].tensor.nbytes());
  }
  return buckets;
}

TEST(Reducer, BucketsFollowReadinessAfterTheFirstStep) {
  testing::run_ranks({}, [](Rank& rank) {
    const ReducerBaselineOptions options = {.first_bucket_bytes = 64, .cap_bytes = 300};
    BaselineTraining training(rank, ToyKind::kMlp, options);
    const auto parameters = training.model().named_parameters();
    std::vector<std::size_t> all(parameters.size());
    std::iota(all.begin(), all.end(), 0);
    Buckets forward = fill(all, parameters, options);
    std::ranges::reverse(forward);
    EXPECT_EQ(training.baseline().buckets(), forward);

    std::vector<std::size_t> ready;
    std::vector<GradientHook> hooks;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      hooks.push_back(on_gradient_ready(parameters[i].tensor,
                                        [&ready, i](const at::Tensor&) { ready.push_back(i); }));
    }
    training.step();
    training.expect_oracles_gradients();
    EXPECT_EQ(training.baseline().buckets(), forward);
    const Buckets by_readiness = fill(ready, parameters, options);
    training.step();
    EXPECT_EQ(training.baseline().buckets(), by_readiness);
    EXPECT_NE(by_readiness, forward);
  });
}

TEST(Reducer, BroadcastsRank0sParametersAndBuffers) {
  testing::run_worlds({1, 3}, [](Rank& rank) {
    ToyOptions options = toy_options(rank);
    options.seed += rank.rank();
    const auto model = make_toy_model(ToyKind::kBatchNorm, options);
    const ReducerBaseline baseline(tensors_of(model->named_parameters()),
                                   tensors_of(model->named_buffers()), rank.group());
    options.seed -= rank.rank();
    const auto rank_0s = make_toy_model(ToyKind::kBatchNorm, options);
    const auto expect_equal = [&](const auto& actual, const auto& expected) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(testing::is_bitwise_equal({.name = expected[i].name}, actual[i].tensor,
                                              expected[i].tensor));
      }
    };
    expect_equal(model->named_parameters(), rank_0s->named_parameters());
    expect_equal(model->named_buffers(), rank_0s->named_buffers());
  });
}

TEST(Reducer, BroadcastsRank0sBuffersBeforeForwardWhereAsked) {
  testing::run_ranks({}, [](Rank& rank) {
    for (const bool asked : {false, true}) {
      ReducerBaselineOptions options = small_buckets();
      options.broadcast_buffers = asked;
      const auto model = make_toy_model(ToyKind::kBatchNorm, toy_options(rank));
      const std::vector<at::Tensor> buffers = tensors_of(model->named_buffers());
      ReducerBaseline baseline(tensors_of(model->named_parameters()), buffers, rank.group(),
                               options);
      for (const at::Tensor& buffer : buffers) {
        buffer.fill_(rank.rank() + 1);
      }
      baseline.before_forward();
      for (const at::Tensor& buffer : buffers) {
        EXPECT_TRUE(buffer.eq(asked ? 1 : rank.rank() + 1).all().item<bool>());
      }
    }
  });
}

TEST(Reducer, DefaultsAreDistributedDataParallels) {
  EXPECT_EQ(ReducerBaselineOptions().first_bucket_bytes, c10d::kDefaultFirstBucketBytes);
  EXPECT_EQ(ReducerBaselineOptions().cap_bytes, c10d::kDefaultBucketBytesCap);
  EXPECT_FALSE(ReducerBaselineOptions().gradient_as_bucket_view);
}

}  // namespace
}  // namespace ddp
