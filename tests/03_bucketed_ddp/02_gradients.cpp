#include <ATen/ATen.h>

#include <limits>

#include "plan.h"
#include "support/chain_model.h"
#include "support/compare.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

// The initial parameters, the gradients, and the result of training with them.

namespace ddp::testing {

namespace {

// On the toy models: one bucket per parameter, several buckets, one bucket per dtype.
constexpr std::int64_t kEach = 1;
constexpr std::int64_t kSome = 300;
constexpr std::int64_t kOne = std::int64_t{25} << 20;

// Ranks that take different branches have a test of their own, with all caps. With only one bucket
// no order can be wrong.
std::vector<std::int64_t> caps_for(ToyKind kind) {
  return kind == ToyKind::kRankBranch ? std::vector{kOne} : std::vector{kEach, kSome, kOne};
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .points = 1,
     .hint = "As in stage 01: parameters, frozen ones too, and buffers of every dtype, bit for "
             "bit, in place."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
            expect_state_of_rank_0(rank, kind, dtype, bucketed(kSome));
          }
        }
        if (rank.world_size() > 1) {
          EXPECT_GT(rank.recorder().operations().size(), 0U) << "nothing was communicated";
        }
      });
    }};

// Layers of alternating dtypes, so that neighbours are in different buckets. The values and their
// sums are exact in each dtype; only a division by 3 rounds.
void expect_mean_of_mixed_dtypes(Rank& rank, std::int64_t cap_bytes) {
  ChainModel model(rank, {{.elements = 12, .dtype = at::kDouble},
                          {.elements = 7, .dtype = at::kHalf},
                          {.elements = 5, .dtype = at::kFloat},
                          {.elements = 9, .dtype = at::kDouble, .trainable = false},
                          {.elements = 3, .dtype = at::kHalf},
                          {.elements = 8, .dtype = at::kDouble}});
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(model.parameters()), {}, rank.group());
  model.loss(0).backward();
  synchronizer->finish();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const auto& [name, parameter] = model.parameters()[i];
    if (!parameter.requires_grad()) {
      continue;
    }
    const at::Tensor expected = model.mean_gradient(i, 0);
    const double epsilon = parameter.scalar_type() == at::kHalf    ? 0x1p-10
                           : parameter.scalar_type() == at::kFloat ? 0x1p-23
                                                                   : 0x1p-52;
    ASSERT_EQ(parameter.grad().scalar_type(), parameter.scalar_type())
        << "the gradient of " << name << " has another dtype than its parameter";
    EXPECT_TRUE(is_close(
        {"the gradient of " + name + " (" + c10::getDtypeNames(parameter.scalar_type()).first +
             ", a model of mixed dtypes, cap " + std::to_string(cap_bytes) + ")",
         rank.world_size(), model.gradient(i, rank.rank(), 0)},
        parameter.grad(), expected,
        expected.to(at::kDouble).abs() * ((rank.world_size() + 2) * epsilon)));
  }
}

// Gradients have their parameters' memory layouts, which need not be row-major; their places in a
// bucket may differ.
void expect_mean_of_other_layouts(Rank& rank, std::int64_t cap_bytes) {
  const auto on_device = at::TensorOptions(at::kDouble).device(settings().device);
  const std::vector<NamedTensor> parameters = {
      {"transposed weight", at::ones({3, 2}, on_device).t().set_requires_grad(true)},
      {"channels-last weight", at::ones({2, 3, 4, 5}, on_device)
                                   .contiguous(at::MemoryFormat::ChannelsLast)
                                   .set_requires_grad(true)},
      {"scalar weight", at::ones({}, on_device).set_requires_grad(true)}};
  rank.name(parameters);
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(parameters), {}, rank.group());
  const auto factor = [&](const at::Tensor& parameter) {
    return at::arange(parameter.numel(), on_device).view(parameter.sizes());
  };
  at::Tensor loss = at::zeros({}, on_device);
  for (const NamedTensor& parameter : parameters) {
    loss = loss + (parameter.tensor * (factor(parameter.tensor) + rank.rank())).sum();
  }
  loss.backward();
  synchronizer->finish();
  for (const auto& [name, parameter] : parameters) {
    EXPECT_TRUE(
        is_close({"the gradient of the " + name + " (cap " + std::to_string(cap_bytes) + ")",
                  rank.world_size(), factor(parameter) + rank.rank()},
                 parameter.grad(), factor(parameter) + (rank.world_size() - 1) / 2.0, 1e-12));
  }
}

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .points = 2,
     .hint = "Copy each gradient into its place in the bucket, by shape and not by memory; reduce; "
             "divide once; hand each place back to its own parameter. A missing one is zero."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          for (const std::int64_t cap : caps_for(kind)) {
            expect_mean_gradients(rank, kind, at::kDouble, bucketed(cap));
            expect_mean_gradients(rank, kind, at::kFloat, bucketed(cap));
          }
        }
        for (const std::int64_t cap : {kEach, std::int64_t{60}, kOne}) {
          expect_mean_of_mixed_dtypes(rank, cap);
          expect_mean_of_other_layouts(rank, cap);
          expect_bitwise_equal_gradients(rank, ToyKind::kMlp, at::kDouble, bucketed(cap));
          expect_bitwise_equal_gradients(rank, ToyKind::kMlp, at::kFloat, bucketed(cap));
        }
      });
    }};

// The contents of a gradient count, even if the caller has not cleared it, and however the caller
// clears it.
void expect_kept_gradients_to_count(Rank& rank, std::int64_t cap_bytes) {
  constexpr std::size_t kLayers = 4;
  ChainModel model(rank, std::vector<ChainLayer>(kLayers, {.elements = 6, .dtype = at::kDouble}));
  const auto& parameters = model.parameters();
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(parameters), {}, rank.group());
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < kLayers; ++i) {
    expected.push_back(at::zeros_like(parameters[i].tensor).detach());
  }
  for (int step = 0; step < 3; ++step) {
    if (step == 2) {  // one set to none, one zeroed in place, one replaced, one kept
      parameters[0].tensor.mutable_grad() = at::Tensor();
      parameters[1].tensor.mutable_grad().detach().zero_();
      parameters[2].tensor.mutable_grad() = at::zeros_like(expected[2]);
      expected = {at::zeros_like(expected[0]), at::zeros_like(expected[1]),
                  at::zeros_like(expected[2]), expected[3]};
    }
    model.loss(step).backward();
    synchronizer->finish();
    for (std::size_t i = 0; i < kLayers; ++i) {
      expected[i] = expected[i] + model.mean_gradient(i, step);
      EXPECT_TRUE(is_close(
          {"the gradient of " + parameters[i].name + " after step " + std::to_string(step) +
               (step < 2 ? ", no gradient being cleared before it,"
                         : ", gradients being cleared in several ways before it,"),
           rank.world_size()},
          parameters[i].tensor.grad(), expected[i], 1e-10));
    }
  }
}

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .points = 1,
     .hint = "Between steps a gradient may be set to none, and is then a different tensor from the "
             "one before; or set to zero, and is the same. Both must work."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          const bool branches = kind == ToyKind::kRankBranch;
          expect_oracle_training(rank, kind, at::kDouble, bucketed(branches ? kOne : kSome));
          expect_oracle_training(rank, kind, at::kFloat, bucketed(branches ? kOne : kEach));
        }
        expect_kept_gradients_to_count(rank, kEach);
        expect_kept_gradients_to_count(rank, 96);
      });
    }};

}  // namespace

}  // namespace ddp::testing
