// The models on which the graded tests rely: the same everywhere.
#include "ddp/models/toy_models.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/checks.h"
#include "common/ranks.h"

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

CHILD_TEST(ToyModels, TiedWeightIsListedTwice) {
  std::map<const void*, std::vector<std::string>> names;
  for (const auto& [name, tensor] : make(ToyKind::kTiedWeights)->named_parameters()) {
    names[tensor.unsafeGetTensorImpl()].push_back(name);
  }
  const auto is_tied = [](const auto& entry) { return entry.second.size() == 2; };
  ASSERT_EQ(std::ranges::count_if(names, is_tied), 1);
  EXPECT_EQ(std::ranges::find_if(names, is_tied)->second,
            (std::vector<std::string>{"fc2.weight", "fc3.weight"}));
}

CHILD_TEST(ToyModels, BatchNormTracksStatisticsInTrainingOnly) {
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
}

CHILD_TEST(ToyModels, BatchesDifferByRankAndStepAndRepeat) {
  const Batch batch = make_toy_batch({.rank = 5, .seed = 1}, 0, 0);
  EXPECT_TRUE(at::equal(batch.input, make_toy_batch({.seed = 1}, 0, 0).input));
  EXPECT_FALSE(at::equal(batch.input, make_toy_batch({.seed = 1}, 1, 0).input));
  EXPECT_FALSE(at::equal(batch.input, make_toy_batch({.seed = 1}, 0, 1).input));
  EXPECT_FALSE(at::equal(batch.input, make_toy_batch({.seed = 2}, 0, 0).input));
}

}  // namespace
}  // namespace ddp
