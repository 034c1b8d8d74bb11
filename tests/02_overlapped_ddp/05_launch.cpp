#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "overlapped.h"
#include "support/communication_checks.h"
#include "support/gradient_watch.h"
#include "support/grading.h"

// When each all-reduce is launched.

namespace ddp::testing {

namespace {

// One backward, as positions in the recorder's order.
struct Backward {
  const std::vector<NamedTensor>& parameters;
  std::vector<ReadyGradient> ready;
  std::int64_t end;
  std::vector<RecordedOperation> operations;  // finish() included

  const std::string& name(std::size_t i) const { return parameters[ready[i].parameter].name; }
  // The all-reduce of the i-th gradient must be launched before this position.
  std::int64_t end_of(std::size_t i) const {
    return i + 1 < ready.size() ? ready[i + 1].position : end;
  }
  // What was happening at `position`.
  std::string moment(std::int64_t position) const;
  std::string story() const;
};

std::string Backward::moment(std::int64_t position) const {
  if (position > end) {
    return "after backward, in finish()";
  }
  std::string last = "before any gradient was accumulated";
  for (std::size_t i = 0; i < ready.size() && ready[i].position < position; ++i) {
    last = "when the gradient of " + name(i) + " was the latest";
  }
  return last;
}

std::string Backward::story() const {
  std::ostringstream out;
  for (const RecordedOperation& operation : operations) {
    out << "\n    " << operation_name(operation.type) << " of " << operation.name << ", "
        << operation.bytes << " bytes, was launched " << moment(operation.launched);
  }
  return operations.empty() ? " nothing" : out.str();
}

// Between the start of accumulating one gradient and the start of the next, exactly its own
// all-reduce is launched.
void expect_each_in_its_hook(const Backward& backward, const std::string& what) {
  for (std::size_t i = 0; i < backward.ready.size(); ++i) {
    const at::Tensor& parameter = backward.parameters[backward.ready[i].parameter].tensor;
    std::vector<std::int64_t> launched;
    for (const RecordedOperation& operation : backward.operations) {
      if (operation.is_all_reduce() && operation.launched > backward.ready[i].position &&
          operation.launched < backward.end_of(i)) {
        launched.push_back(operation.bytes);
      }
    }
    const std::vector<std::int64_t> expected = {static_cast<std::int64_t>(parameter.nbytes())};
    EXPECT_EQ(launched, expected)
        << "these are the bytes of the all-reduces launched after the gradient of "
        << backward.name(i) << " was accumulated and before "
        << (i + 1 < backward.ready.size() ? "that of " + backward.name(i + 1) : "backward returned")
        << " (" << what
        << "): it should be its own, and no other. In this backward:" << backward.story();
  }
}

// Runs and checks one backward and its finish().
void expect_launches(Rank& rank, GradientSynchronizer& synchronizer, const at::Tensor& loss,
                     const std::vector<NamedTensor>& parameters, const std::string& what) {
  const GradientWatch watch(rank, parameters);
  rank.recorder().clear();
  loss.backward();
  const std::int64_t end = rank.recorder().mark();
  synchronizer.finish();
  const auto operations = rank.recorder().operations();
  if (rank.world_size() > 1 || !operations.empty()) {
    expect_each_in_its_hook({parameters, watch.ready(), end, operations}, what);
  }
}

void expect_launches_of_toy_model(Rank& rank, ToyKind kind) {
  Trainee trainee(rank, kind, toy_options(rank, at::kFloat), overlapped());
  const auto loss = [&](int step) {
    return toy_loss(*trainee.model, make_toy_batch(trainee.options, rank.rank(), step));
  };
  for (int step = 0; step < 3; ++step) {
    clear_gradients(trainee.parameters, /*to_none=*/step % 2 == 1);
    const std::string what = "model: " + to_string(kind) + ", step " + std::to_string(step);
    expect_launches(rank, *trainee.synchronizer, loss(step), trainee.parameters, what);
  }
}

void expect_launches_of_chain(Rank& rank) {
  ChainModel model(rank, layers_of({11, 2, 31, 5, 23, 1, 17}));
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  expect_launches(rank, *synchronizer, model.loss(0), model.parameters(),
                  "seven layers, one parameter each");
}

const GradedTest kLaunch{
    {.name = "each_all_reduce_starts_in_its_own_hook",
     .points = 3,
     .hint = "The hook of a parameter launches its all-reduce at once: not before the gradient is "
             "accumulated, not together with the next one, and not in finish()."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        expect_launches_of_chain(rank);
        for (const ToyKind kind : same_order_models()) {
          expect_launches_of_toy_model(rank, kind);
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
