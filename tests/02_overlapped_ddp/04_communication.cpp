#include <ATen/ATen.h>

#include <algorithm>

#include "overlapped.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/gradient_watch.h"
#include "support/grading.h"

// What is communicated: how often, and how much.

namespace ddp::testing {

namespace {

// "192 bytes of float32", sorted.
std::vector<std::string> sizes_of(const std::vector<RecordedOperation>& operations) {
  std::vector<std::string> sizes;
  sizes.reserve(operations.size());
  for (const RecordedOperation& operation : operations) {
    sizes.push_back(std::to_string(operation.bytes) + " bytes of " +
                    c10::getDtypeNames(operation.dtype).first);
  }
  std::ranges::sort(sizes);
  return sizes;
}

std::vector<std::string> sizes_of(const std::vector<NamedTensor>& parameters) {
  std::vector<RecordedOperation> operations;
  for (const NamedTensor& parameter : parameters) {
    RecordedOperation& one = operations.emplace_back();
    one.bytes = static_cast<std::int64_t>(parameter.tensor.nbytes());
    one.dtype = parameter.tensor.scalar_type();
  }
  return sizes_of(operations);
}

// A step all-reduces the gradients that backward made ready; gradients that no rank has may take
// part, as zeros. A single rank may communicate nothing.
void expect_one_each(Rank& rank, const std::vector<NamedTensor>& parameters,
                     const GradientWatch& watch, const std::string& model) {
  const auto operations = rank.recorder().operations();
  const auto actual = sizes_of(all_reduces(operations));
  std::vector<NamedTensor> ready;
  for (const ReadyGradient& gradient : watch.ready()) {
    ready.push_back(parameters[gradient.parameter]);
  }
  const bool unused_too = actual.size() == parameters.size();
  if (rank.world_size() > 1 || !actual.empty()) {
    EXPECT_EQ(actual, sizes_of(unused_too ? parameters : ready))
        << "first what the all-reduces of a step were, then what they should be (model: " << model
        << "); communicated was:" << list_of(operations);
  }
  expect_same_order_everywhere(rank, operations);
}

void expect_one_each(Rank& rank, ToyKind kind) {
  Trainee trainee(rank, kind, toy_options(rank, at::kFloat), overlapped());
  GradientWatch watch(rank, trainee.parameters);
  for (int step = 0; step < 2; ++step) {
    clear_gradients(trainee.parameters, /*to_none=*/step == 1);
    watch.clear();
    rank.recorder().clear();
    const at::Tensor loss =
        toy_loss(*trainee.model, make_toy_batch(trainee.options, rank.rank(), 0));
    expect_silence(rank, "forward (model: " + to_string(kind) + ")");
    loss.backward();
    trainee.synchronizer->finish();
    expect_one_each(rank, trainee.parameters, watch, to_string(kind));
  }
}

void expect_one_each_of_mixed_dtypes(Rank& rank) {
  ChainModel model(rank, {{.elements = 5, .dtype = at::kDouble},
                          {.elements = 10, .dtype = at::kFloat},
                          {.elements = 5, .dtype = at::kFloat}});
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  const GradientWatch watch(rank, model.parameters());
  rank.recorder().clear();
  model.loss(0).backward();
  synchronizer->finish();
  expect_one_each(rank, model.parameters(), watch, "mixed dtypes");
}

// finish() before any backward, and repeatedly after one: gradients do not change.
void expect_idle_finish_harmless(Rank& rank) {
  ChainModel model(rank, layers_of({3, 5}));
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  synchronizer->finish();
  for (const auto& [name, parameter] : model.parameters()) {
    EXPECT_TRUE(is_close({"after finish() without any backward, the gradient of " + name},
                         or_zero(parameter.grad(), parameter), at::zeros_like(parameter), 0.0));
  }
  for (int step = 0; step < 2; ++step) {
    clear_gradients(model.parameters(), /*to_none=*/true);
    model.loss(step).backward();
    synchronizer->finish();
    synchronizer->finish();
    synchronizer->finish();
    expect_chain_means(rank, model, step, "after finish() was called three times");
  }
}

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_parameter",
     .points = 2,
     .hint = "A step makes one all-reduce for each gradient, of exactly its bytes: none for frozen "
             "ones, one for a tied weight, none in forward, and nothing else is communicated."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : same_order_models()) {
          expect_one_each(rank, kind);
        }
        expect_one_each_of_mixed_dtypes(rank);
        expect_idle_finish_harmless(rank);
      });
    }};

}  // namespace

}  // namespace ddp::testing
