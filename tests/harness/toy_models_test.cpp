// The models on which the graded tests rely: the same everywhere, with exact costs.
#include "ddp/models/toy_models.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ddp/simulation/virtual_clock.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::in_child;

std::unique_ptr<Model> make(ToyKind kind, int rank = 0, std::uint64_t seed = 1,
                            at::ScalarType dtype = at::kDouble) {
  return make_toy_model(kind, {.dtype = dtype, .rank = rank, .seed = seed});
}

std::vector<NamedTensor> state_of(const Model& model) {
  std::vector<NamedTensor> state = model.named_parameters();
  for (const NamedTensor& buffer : model.named_buffers()) {
    state.push_back(buffer);
  }
  return state;
}

// Every model, in a child process: the parent of the ranks touches no tensor.
void for_all_models(const std::function<void(ToyKind)>& check) {
  in_child([&] {
    for (ToyKind kind : all_toy_models()) {
      SCOPED_TRACE(to_string(kind));
      check(kind);
    }
  });
}

TEST(VirtualClock, MovesForwardOnly) {
  VirtualClock clock;
  clock.advance(5);
  clock.advance_to(3);
  EXPECT_EQ(clock.now(), 5);
  clock.advance_to(9);
  EXPECT_EQ(clock.now(), 9);
  clock.reset();
  EXPECT_EQ(clock.now(), 0);
}

TEST(VirtualClock, SimulatedComputeIsTheIdentityAndPaysBothWays) {
  in_child([] {
    auto clock = std::make_shared<VirtualClock>();
    at::Tensor x = at::arange(3, at::kDouble).set_requires_grad(true);
    for (int step = 0; step < 2; ++step) {
      clock->reset();
      at::Tensor y = simulated_compute(x, clock, 10, 20);
      EXPECT_EQ(clock->now(), 10);
      EXPECT_TRUE(at::equal(y, x));
      y.sum().backward();
      EXPECT_EQ(clock->now(), 30) << "a leaf must not remember the hooks of earlier steps";
    }
    simulated_compute(at::ones({2}), clock, 1, 1);
    EXPECT_EQ(clock->now(), 31) << "no gradient, no backward";
  });
}

TEST(ToyModels, SameSeedSameStateOnEveryRank) {
  for_all_models([](ToyKind kind) {
    at::rand({7});  // the global generator has no influence
    const auto first = state_of(*make(kind, /*rank=*/0)), second = state_of(*make(kind, 3));
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].name, second[i].name);
      EXPECT_TRUE(at::equal(first[i].tensor, second[i].tensor)) << first[i].name;
    }
  });
}

TEST(ToyModels, AnotherSeedChangesEveryTensor) {
  for_all_models([](ToyKind kind) {
    const auto first = state_of(*make(kind, 0, 1)), second = state_of(*make(kind, 0, 2));
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_FALSE(at::equal(first[i].tensor, second[i].tensor)) << first[i].name;
    }
  });
}

TEST(ToyModels, Float32IsTheRoundedFloat64) {
  for_all_models([](ToyKind kind) {
    const auto wide = state_of(*make(kind)), narrow = state_of(*make(kind, 0, 1, at::kFloat));
    for (std::size_t i = 0; i < wide.size(); ++i) {
      EXPECT_TRUE(at::equal(wide[i].tensor.to(narrow[i].tensor.dtype()), narrow[i].tensor));
    }
  });
}

TEST(ToyModels, GradientsAreDefinedWhereTheKindSaysSo) {
  for_all_models([](ToyKind kind) {
    for (int rank = 0; rank < 4; ++rank) {
      for (at::ScalarType dtype : {at::kDouble, at::kFloat}) {
        auto model = make(kind, rank, 1, dtype);
        at::Tensor loss = toy_loss(*model, make_toy_batch({.dtype = dtype}, rank, 0));
        EXPECT_EQ(loss.scalar_type(), dtype);
        loss.backward();
        for (const auto& [name, parameter] : model->named_parameters()) {
          const bool frozen = kind == ToyKind::kFrozenBias && name == "fc2.bias";
          const bool skipped =
              name == "unused.weight" || (name.starts_with("branch") && rank % 2 == 0);
          EXPECT_EQ(parameter.requires_grad(), !frozen) << name;
          EXPECT_EQ(parameter.grad().defined(), !frozen && !skipped) << name << " on rank " << rank;
          EXPECT_TRUE(frozen || skipped || parameter.grad().ne(0).all().item<bool>()) << name;
        }
      }
    }
  });
}

TEST(ToyModels, TiedWeightIsListedTwice) {
  in_child([] {
    std::map<const void*, std::vector<std::string>> names;
    for (const auto& [name, tensor] : make(ToyKind::kTiedWeights)->named_parameters()) {
      names[tensor.unsafeGetTensorImpl()].push_back(name);
    }
    const auto is_tied = [](const auto& entry) { return entry.second.size() == 2; };
    ASSERT_EQ(std::ranges::count_if(names, is_tied), 1);
    EXPECT_EQ(std::ranges::find_if(names, is_tied)->second,
              (std::vector<std::string>{"fc2.weight", "fc3.weight"}));
  });
}

TEST(ToyModels, BatchNormTracksStatisticsInTrainingOnly) {
  in_child([] {
    auto model = make(ToyKind::kBatchNorm);
    const auto snapshot = [&] {
      std::vector<at::Tensor> copies;
      for (const NamedTensor& buffer : model->named_buffers()) {
        copies.push_back(buffer.tensor.clone());
      }
      return copies;
    };
    const Batch batch = make_toy_batch({}, 0, 0);
    const auto before = snapshot();
    ASSERT_EQ(before.size(), 3);
    model->forward(batch.input);
    const auto trained = snapshot();
    EXPECT_FALSE(at::equal(before[0], trained[0]));
    EXPECT_FALSE(at::equal(before[1], trained[1]));
    EXPECT_EQ(before[2].scalar_type(), at::kLong);
    EXPECT_EQ(before[2].item<std::int64_t>() + 1, trained[2].item<std::int64_t>());

    model->train(false);
    model->forward(batch.input);
    const auto evaluated = snapshot();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal(trained[i], evaluated[i]));
    }
  });
}

TEST(ToyModels, BatchesDifferByRankAndStepAndRepeat) {
  in_child([] {
    const Batch batch = make_toy_batch({.rank = 5, .seed = 1}, 0, 0);
    EXPECT_TRUE(at::equal(batch.input, make_toy_batch({.seed = 1}, 0, 0).input));
    EXPECT_FALSE(at::equal(batch.input, make_toy_batch({.seed = 1}, 1, 0).input));
    EXPECT_FALSE(at::equal(batch.input, make_toy_batch({.seed = 1}, 0, 1).input));
    EXPECT_FALSE(at::equal(batch.input, make_toy_batch({.seed = 2}, 0, 0).input));
  });
}

TEST(ToyModels, AStepCostsItsLayers) {
  for_all_models([](ToyKind kind) {
    for (int rank = 0; rank < 2; ++rank) {
      auto clock = std::make_shared<VirtualClock>();
      const ToyOptions options{.rank = rank, .clock = clock, .forward_ns = 7, .backward_ns = 1000};
      auto model = make_toy_model(kind, options);
      at::Tensor loss = toy_loss(*model, make_toy_batch(options, rank, 0));
      EXPECT_EQ(clock->now(), toy_layers(kind) * 7);
      loss.backward();
      EXPECT_EQ(clock->now(), toy_layers(kind) * (7 + 1000));
    }
  });
}

// The time at which a layer's gradients are ready: after its own backward, before the next layer's.
TEST(ToyModels, GradientsAreReadyAfterTheirLayersBackward) {
  in_child([] {
    auto clock = std::make_shared<VirtualClock>();
    auto model = make_toy_model(ToyKind::kMlp, {.clock = clock, .backward_ns = 1000});
    std::map<std::string, std::int64_t> ready;
    for (const auto& [name, parameter] : model->named_parameters()) {
      parameter.register_hook(
          [&ready, &clock, name = name](const at::Tensor&) { ready[name] = clock->now(); });
    }
    toy_loss(*model, make_toy_batch({}, 0, 0)).backward();
    const std::map<std::string, std::int64_t> expected = {{"fc3.weight", 1000}, {"fc3.bias", 1000},
                                                          {"fc2.weight", 2000}, {"fc2.bias", 2000},
                                                          {"fc1.weight", 3000}, {"fc1.bias", 3000}};
    EXPECT_EQ(ready, expected);
  });
}

}  // namespace
}  // namespace ddp
