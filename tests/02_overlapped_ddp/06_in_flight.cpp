#include <ATen/ATen.h>

#include <optional>

#include "overlapped.h"
#include "support/communication_checks.h"
#include "support/grading.h"

// What must not happen between a launch and its completion.

namespace ddp::testing {

namespace {

// More than any limit on operations in flight that a solution is likely to set.
constexpr std::size_t kDeep = 40;

using Losses = std::function<at::Tensor(int step)>;

// A layer whose weight is not row-major in memory: its gradient may have to be copied to another
// tensor for communication.
struct TransposedLayer {
  TransposedLayer(Rank& where, const MakeSynchronizer& make) : rank(where.rank()) {
    where.name(parameters);
    synchronizer = make(tensors_of(parameters), {}, where.group());
  }

  at::Tensor loss(int step) const {
    return (parameters[0].tensor * (1 + rank + step) + parameters[1].tensor).sum();
  }

  int rank;
  at::TensorOptions options = at::TensorOptions(at::kFloat).device(settings().device);
  std::vector<NamedTensor> parameters = {
      {"transposed weight", at::ones({3, 2}, options).t().set_requires_grad(true)},
      {"bias", at::ones({3}, options).set_requires_grad(true)}};
  std::unique_ptr<GradientSynchronizer> synchronizer;
};

// Completions are held back until backward has ended. The harness reports any wait in between,
// which fails the test.
void expect_no_wait(Rank& rank, GradientSynchronizer& synchronizer, const Losses& loss,
                    const std::string& what) {
  for (int step = 0; step < 2; ++step) {
    rank.recorder().clear();
    {
      const at::Tensor value = loss(step);
      const HeldCompletions held(*rank.checked());
      value.backward();
    }
    EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
        << "backward launched no all-reduce (" << what
        << "), so there was nothing that it could have waited for, and nothing overlaps";
    synchronizer.finish();
  }
}

void expect_no_wait(Rank& rank) {
  for (const ToyKind kind : {ToyKind::kMlp, ToyKind::kTiedWeights}) {
    Trainee trainee(rank, kind, toy_options(rank, at::kFloat), overlapped());
    expect_no_wait(
        rank, *trainee.synchronizer,
        [&](int step) {
          return toy_loss(*trainee.model, make_toy_batch(trainee.options, rank.rank(), step));
        },
        "model: " + to_string(kind));
  }
  ChainModel deep(rank, std::vector<ChainLayer>(kDeep, {.elements = 3}));
  const auto synchronizer = overlapped()(tensors_of(deep.parameters()), {}, rank.group());
  expect_no_wait(
      rank, *synchronizer, [&](int step) { return deep.loss(step); },
      std::to_string(kDeep) + " layers");
  const TransposedLayer layer(rank, overlapped());
  expect_no_wait(
      rank, *layer.synchronizer, [&](int step) { return layer.loss(step); }, "a transposed weight");
}

const GradedTest kNoWait{
    {.name = "nothing_waits_inside_backward",
     .points = 2,
     .hint = "A hook starts communication and returns. Any kind of wait, by Work, by a future or "
             "by polling, blocks backward until the network is done."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "completions can be held back on the CPU only";
      }
      run_worlds({2, 3, 4}, [](Rank& rank) { expect_no_wait(rank); });
    }};

// When finish() returns, the step's communication has completed.
void expect_nothing_pending(Rank& rank, const std::string& what) {
  for (const std::string& operation : rank.checked()->pending()) {
    ADD_FAILURE() << "when finish() returned (" << what << "), nobody had waited for " << operation;
  }
}

void expect_untouched(Rank& rank, ToyKind kind) {
  Trainee trainee(rank, kind, toy_options(rank, at::kFloat), overlapped());
  rank.recorder().clear();
  trainee.backward(0);
  trainee.synchronizer->finish();
  expect_nothing_pending(rank, "model: " + to_string(kind));
  EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
      << "a step made no all-reduce, so there was nothing to watch (model: " << to_string(kind)
      << ")";
}

void expect_untouched_transposed(Rank& rank) {
  const TransposedLayer layer(rank, overlapped());
  layer.loss(0).backward();
  layer.synchronizer->finish();
  expect_nothing_pending(rank, "a transposed weight");
}

const GradedTest kInFlight{
    {.name = "nothing_touches_a_gradient_in_flight",
     .points = 1,
     .hint = "From its launch until it has been waited for, a gradient belongs to the network: "
             "neither write it (dividing it) nor read it. finish() waits for every handle."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "buffers in flight are watched on the CPU only";
      }
      RankOptions options;
      options.watch_accesses = true;
      run_worlds(
          {2, 3},
          [](Rank& rank) {
            for (const ToyKind kind : same_order_models()) {
              expect_untouched(rank, kind);
            }
            expect_untouched_transposed(rank);
          },
          options);
    }};

}  // namespace

}  // namespace ddp::testing
