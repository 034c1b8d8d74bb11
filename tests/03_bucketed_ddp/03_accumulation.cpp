#include <ATen/ATen.h>

#include "branching_model.h"
#include "plan.h"
#include "support/chain_model.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

// Gradients of several backwards, of which only the last one communicates.

namespace ddp::testing {

namespace {

constexpr std::int64_t kCap = 100;  // two layers per bucket, for the layers below

// k micro-batches whose losses are divided by k give the gradient of the whole batch.
void expect_micro_batches(Rank& rank) {
  constexpr int kBatches = 4;
  ChainModel model(rank, std::vector<ChainLayer>(5, {.elements = 8, .dtype = at::kDouble}));
  const auto& parameters = model.parameters();
  const auto synchronizer = bucketed(kCap)(tensors_of(parameters), {}, rank.group());
  const std::size_t buckets = assign_buckets(tensors_of(parameters), kCap).size();
  for (const bool to_none : {true, false}) {
    clear_gradients(parameters, to_none);
    rank.recorder().clear();
    {
      const NoSync scope(*synchronizer);
      for (int batch = 0; batch + 1 < kBatches; ++batch) {
        model.loss(batch, 1.0 / kBatches).backward();
        synchronizer->finish();
      }
      expect_silence(rank, "micro-batches inside a NoSync scope");
    }
    model.loss(kBatches - 1, 1.0 / kBatches).backward();
    synchronizer->finish();
    const auto launched = all_reduces(rank.recorder().operations());
    EXPECT_TRUE(launched.size() == buckets || (launched.empty() && rank.world_size() == 1))
        << "four micro-batches, three of them inside NoSync, should reduce each of the " << buckets
        << " buckets once; they did:" << list_of(launched);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor expected = at::zeros_like(parameters[i].tensor).detach();
      for (int batch = 0; batch < kBatches; ++batch) {
        expected = expected + model.mean_gradient(i, batch) / kBatches;
      }
      EXPECT_TRUE(is_close({"the gradient of " + parameters[i].name + " over four micro-batches" +
                                (to_none ? "" : ", gradients being set to zero before them,"),
                            rank.world_size()},
                           parameters[i].tensor.grad(), expected, 1e-10));
    }
  }
}

// A backward inside NoSync, and one outside that uses only `used_outside`.
void expect_untouched_to_count(Rank& rank, const std::vector<std::size_t>& used_outside) {
  const BranchingModel model(rank, {8, 6, 7, 5});
  const auto& parameters = model.parameters();
  const auto synchronizer = bucketed(kCap)(tensors_of(parameters), {}, rank.group());
  {
    const NoSync scope(*synchronizer);
    model.loss({0, 1, 2}, 0).backward();
  }
  if (!used_outside.empty()) {
    model.loss(used_outside, 1).backward();
  }
  synchronizer->finish();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool again = std::ranges::find(used_outside, i) != used_outside.end();
    const auto on = [&](int of_rank) {
      return (i < 3 ? 1 : 0) * model.gradient(i, of_rank, 0) +
             (again ? 1 : 0) * model.gradient(i, of_rank, 1);
    };
    at::Tensor expected = at::zeros_like(parameters[i].tensor).detach();
    for (int of_rank = 0; of_rank < rank.world_size(); ++of_rank) {
      expected = expected + on(of_rank) / rank.world_size();
    }
    EXPECT_TRUE(is_close({"the gradient of " + parameters[i].name + ", which was used " +
                              (i < 3 ? "inside NoSync" : "nowhere inside NoSync") + " and " +
                              (again ? "in the backward after it," : "not after it,"),
                          rank.world_size(), on(rank.rank())},
                         or_zero(parameters[i].tensor.grad(), parameters[i].tensor), expected,
                         1e-10));
  }
}

const GradedTest kAccumulation{
    {.name = "gradients_accumulate_inside_no_sync",
     .points = 1,
     .hint = "Inside NoSync hooks launch nothing. finish() reduces what each gradient holds, "
             "whether or not the last backward called its hook."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        expect_accumulated_gradient(rank, bucketed(kCap));
        expect_micro_batches(rank);
        expect_untouched_to_count(rank, {1});
        expect_untouched_to_count(rank, {3, 0});
        expect_untouched_to_count(rank, {});
      });
    }};

}  // namespace

}  // namespace ddp::testing
