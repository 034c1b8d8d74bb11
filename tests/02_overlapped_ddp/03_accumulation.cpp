#include <ATen/ATen.h>

#include "overlapped.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

// Several backwards, one communication.

namespace ddp::testing {

namespace {

constexpr std::int64_t kMicroBatches = 4;

// One all-reduce for each of `parameters`. A single rank may communicate nothing.
void expect_once_each(Rank& rank, const std::vector<NamedTensor>& parameters,
                      const std::string& when) {
  const auto operations = rank.recorder().operations();
  if (rank.world_size() > 1 || !operations.empty()) {
    EXPECT_EQ(sorted(payloads(all_reduces(operations))), sorted(gradient_bytes(parameters)))
        << "these are the bytes of each all-reduce " << when
        << ", first as it was, then as it should be; communicated was:" << list_of(operations);
  }
}

// The mean loss of a batch is the mean of its micro-batches' mean losses.
void expect_one_large_batch(Rank& rank) {
  Trainee trainee(rank, ToyKind::kMlp, toy_options(rank, at::kDouble), overlapped());
  Oracle oracle(ToyKind::kMlp, trainee.options, rank.world_size());
  const Batch batch = make_toy_batch(trainee.options, rank.rank(), 0);
  const auto inputs = batch.input.chunk(kMicroBatches);
  const auto targets = batch.target.chunk(kMicroBatches);
  const auto backward = [&](std::int64_t part) {
    (toy_loss(*trainee.model, {inputs[part], targets[part]}) / kMicroBatches).backward();
  };
  rank.recorder().clear();
  {
    const NoSync scope(*trainee.synchronizer);
    for (std::int64_t part = 0; part + 1 < kMicroBatches; ++part) {
      backward(part);
      trainee.synchronizer->finish();
    }
  }
  expect_silence(rank, "backward or finish() inside a NoSync scope");
  backward(kMicroBatches - 1);
  trainee.synchronizer->finish();
  expect_once_each(rank, trainee.parameters,
                   "of a step of " + std::to_string(kMicroBatches) +
                       " micro-batches, all but the last inside NoSync");
  expect_mean_gradients(trainee, oracle, rank.world_size());
}

void backward_of_layer(const ChainModel& model, std::size_t layer, int rank, int step) {
  (model.parameters()[layer].tensor * model.gradient(layer, rank, step)).sum().backward();
}

// The all-reduces of layers 0 and 1, in the order of their launches.
std::vector<std::string> order_of_first_two(Rank& rank, const ChainModel& model) {
  std::vector<std::string> order;
  for (const RecordedOperation& operation : all_reduces(rank.recorder().operations())) {
    for (const std::size_t layer : {0, 1}) {
      const auto& [name, parameter] = model.parameters()[layer];
      if (operation.bytes == static_cast<std::int64_t>(parameter.nbytes())) {
        order.push_back(name);
      }
    }
  }
  return order;
}

// Layers 0 and 1 get a gradient only inside NoSync, in a different order on each rank; layer 2 gets
// one outside. Only the order of `parameters` is the same on all ranks.
void expect_gradients_of_the_scope_only(Rank& rank) {
  ChainModel model(rank, layers_of({3, 5, 7}));
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  rank.recorder().clear();
  {
    const NoSync scope(*synchronizer);
    const NoSync nested(*synchronizer);
    const std::size_t first = rank.rank() % 2;
    backward_of_layer(model, first, rank.rank(), 0);
    backward_of_layer(model, 1 - first, rank.rank(), 0);
  }
  expect_silence(rank, "a backward inside a NoSync scope");
  backward_of_layer(model, 2, rank.rank(), 0);
  synchronizer->finish();
  expect_once_each(rank, model.parameters(),
                   "(two of three got their gradient inside NoSync only)");
  if (rank.world_size() > 1) {
    EXPECT_EQ(order_of_first_two(rank, model), (std::vector<std::string>{"layer 0", "layer 1"}))
        << "what got its gradient inside NoSync only is sent by finish() in the order of "
           "`parameters`: the order in which the gradients came is another one on each rank";
  }
  expect_chain_means(rank, model, 0, "(of which two layers got theirs inside NoSync only)");

  // The next step owes nothing from this one.
  clear_gradients(model.parameters(), /*to_none=*/true);
  rank.recorder().clear();
  model.loss(1).backward();
  synchronizer->finish();
  expect_once_each(rank, model.parameters(), "of the step after one with a NoSync scope");
  expect_chain_means(rank, model, 1, "(of the step after one with a NoSync scope)");
}

// A backward outside launches from its hooks, whether or not gradients were accumulated before.
void expect_launches_after_the_scope(Rank& rank) {
  ChainModel model(rank, layers_of({3, 5}));
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  const auto launched_in_backward = [&] {
    rank.recorder().clear();
    model.loss(0).backward();
    const auto launched = all_reduces(rank.recorder().operations());
    synchronizer->finish();
    return payloads(launched);
  };
  const auto plain = launched_in_backward();
  {
    const NoSync scope(*synchronizer);
    model.loss(0).backward();
  }
  EXPECT_EQ(launched_in_backward(), plain)
      << "these are the bytes of each all-reduce that was launched inside the backward after a "
         "NoSync scope, then those of a backward without one before it";
}

const GradedTest kAccumulation{
    {.name = "micro_batches_communicate_once",
     .points = 2,
     .hint = "Inside NoSync a hook sends nothing, but records that a reduction is due. The sum is "
             "sent by the hook of a backward outside or by finish(), whichever comes first."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        expect_accumulated_gradient(rank, overlapped());
        expect_one_large_batch(rank);
        expect_gradients_of_the_scope_only(rank);
        expect_launches_after_the_scope(rank);
      });
    }};

}  // namespace

}  // namespace ddp::testing
