#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "ddp/meters/memory_meter.h"
#include "overlapped.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"
#include "support/oracle.h"

// After a hundred steps, and after destruction.

namespace ddp::testing {

namespace {

// A step that must communicate, and end with the means. A single rank may communicate nothing.
void expect_whole_step(Rank& rank, ChainModel& model, GradientSynchronizer& synchronizer,
                       const std::string& what) {
  clear_gradients(model.parameters(), /*to_none=*/true);
  rank.recorder().clear();
  model.loss(1).backward();
  synchronizer.finish();
  if (rank.world_size() > 1) {
    EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
        << "a step " << what << " communicated nothing: have the hooks of one synchronizer gone "
        << "with those of another?";
  }
  expect_chain_means(rank, model, 1, what);
}

// The synchronizer exists during forward, but no longer during backward.
void expect_unhooked(Rank& rank) {
  Trainee trainee(rank, ToyKind::kMlp, toy_options(rank, at::kDouble), overlapped());
  rank.recorder().clear();
  trainee.backward(0);
  trainee.synchronizer->finish();
  if (rank.world_size() > 1) {
    EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
        << "a step before the destruction communicated nothing, so there was nothing to unhook";
  }
  clear_gradients(trainee.parameters, /*to_none=*/true);
  const at::Tensor loss = toy_loss(*trainee.model, make_toy_batch(trainee.options, rank.rank(), 1));
  trainee.synchronizer.reset();
  rank.recorder().clear();
  try {
    loss.backward();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "a backward after the synchronizer was destroyed threw an exception: are its "
                     "hooks still there? It was: "
                  << error.what();
  }
  expect_silence(rank, "a backward after the synchronizer was destroyed");
  Oracle oracle(ToyKind::kMlp, trainee.options, rank.world_size());
  const auto expected = oracle.gradients(1, rank.rank());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, parameter] = trainee.parameters[i];
    EXPECT_TRUE(
        is_close({"after the synchronizer was destroyed, this rank's own gradient of " + name},
                 parameter.grad(), expected[i].local, 1e-12));
  }
}

// Several synchronizers hook the same parameters. Destroying one removes only its own hooks.
void expect_others_unharmed(Rank& rank) {
  ChainModel model(rank, layers_of({3, 5, 7}));
  const auto make = [&] { return overlapped()(tensors_of(model.parameters()), {}, rank.group()); };
  auto first = make();
  auto second = make();
  second.reset();
  expect_whole_step(rank, model, *first,
                    "(of a synchronizer, after a second one on the same parameters was made and "
                    "destroyed)");
  auto third = make();
  first.reset();
  expect_whole_step(rank, model, *third,
                    "(of a synchronizer, after the one on the same parameters that was made before "
                    "it was destroyed)");
}

const GradedTest kDestruction{
    {.name = "destruction_removes_the_hooks",
     .points = 1,
     .hint = "The handle that on_gradient_ready returns removes the hook when it is destroyed. Who "
             "owns your handles, and does anything else keep them, or what they refer to, alive?"},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        expect_unhooked(rank);
        expect_others_unharmed(rank);
      });
    }};

constexpr int kSteps = 100;
constexpr int kSettled = 20;  // steps after which all one-time allocations have been made

// What a program keeps between two steps.
struct Footprint {
  std::int64_t bytes;       // of CPU tensors
  std::int64_t handles;     // of operations
  std::int64_t references;  // to the gradients
  std::size_t operations;   // of the previous step
};

Footprint footprint(Rank& rank, const MemoryMeter& meter, const ChainModel& model) {
  const std::size_t operations = rank.recorder().operations().size();
  rank.settle();  // the harness releases operations with a delay
  std::int64_t references = 0;
  for (const NamedTensor& parameter : model.parameters()) {
    references += static_cast<std::int64_t>(parameter.tensor.grad().use_count());
  }
  return {meter.live_bytes(), rank.recorder().live_handles(), references, operations};
}

// Typical training steps, of four kinds in rotation.
void train_step(ChainModel& model, GradientSynchronizer& synchronizer, int step) {
  clear_gradients(model.parameters(), /*to_none=*/step % 2 == 0);
  if (step % 4 == 2) {
    const NoSync scope(synchronizer);
    model.loss(step).backward();
  }
  model.loss(step).backward();
  synchronizer.finish();
  if (step % 4 == 3) {
    synchronizer.finish();
  }
}

void expect_no_growth(Rank& rank) {
  const MemoryMeter meter;
  ChainModel model(rank, layers_of({64, 256, 128}));
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  Footprint settled{};
  for (int step = 1; step <= kSteps; ++step) {
    rank.recorder().clear();
    train_step(model, *synchronizer, step);
    if (step == kSettled) {
      settled = footprint(rank, meter, model);
      EXPECT_TRUE(rank.world_size() == 1 || settled.operations > 0)
          << "a step communicated nothing, so there is nothing that could grow";
    }
  }
  const Footprint last = footprint(rank, meter, model);
  const std::string since = " after step " + std::to_string(kSettled) +
                            ", and as many after step " + std::to_string(kSteps) + ": ";
  EXPECT_LE(last.handles, settled.handles)
      << "handles of all-reduces were kept alive: the second number" << since
      << "what finish() has waited for can go";
  EXPECT_LE(last.references, settled.references)
      << "references to the gradients: the second number" << since
      << "somebody collects tensors, and does not let go of them";
  EXPECT_LE(last.bytes, settled.bytes) << "bytes of tensors were alive: the second number" << since
                                       << "somebody collects tensors, and does not let go of them";
  EXPECT_EQ(last.operations, settled.operations)
      << "operations of one step: the second number" << since
      << "are hooks registered again and again?";
}

const GradedTest kGrowth{
    {.name = "a_hundred_steps_do_not_grow",
     .points = 1,
     .hint = "What a step collects (handles, tensors, flags) must be gone when finish() returns, "
             "or the next step would process it again."},
    [] {
      run_worlds({1, 2, 4}, expect_no_growth);
    }};

}  // namespace

}  // namespace ddp::testing
