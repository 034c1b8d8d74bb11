#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "branching_model.h"
#include "plan.h"
#include "support/chain_model.h"
#include "support/communication_checks.h"
#include "support/gradient_watch.h"
#include "support/grading.h"
#include "support/oracle.h"

// When buckets are launched, and what happens between then and finish().

namespace ddp::testing {

namespace {

// A step as the harness observed it.
struct WatchedStep {
  std::vector<ReadyGradient> ready;  // indices refer to the synchronizer's parameters
  std::vector<RecordedOperation> launched;
  std::int64_t backward_ended = 0;  // the recorder's position
};

WatchedStep watch_step(Rank& rank, const std::vector<NamedTensor>& parameters,
                       GradientSynchronizer& synchronizer, const std::function<void()>& backward) {
  const auto watched = trainable(parameters);
  GradientWatch watch(rank, watched);
  rank.recorder().clear();
  backward();
  WatchedStep step{
      .ready = watch.ready(), .launched = {}, .backward_ended = rank.recorder().mark()};
  synchronizer.finish();
  step.launched = all_reduces(rank.recorder().operations());
  for (ReadyGradient& gradient : step.ready) {
    const auto at = std::ranges::find_if(parameters, [&](const NamedTensor& parameter) {
      return parameter.tensor.is_same(watched[gradient.parameter].tensor);
    });
    gradient.parameter = at - parameters.begin();
  }
  return step;
}

// The index in `ready` of the last gradient of a bucket; nothing if one of its gradients never
// came.
std::optional<std::size_t> last_ready(const std::vector<ReadyGradient>& ready,
                                      const std::vector<std::size_t>& bucket) {
  std::size_t last = 0;
  for (const std::size_t member : bucket) {
    const auto at = std::ranges::find(ready, member, &ReadyGradient::parameter);
    if (at == ready.end()) {
      return std::nullopt;
    }
    last = std::max(last, static_cast<std::size_t>(at - ready.begin()));
  }
  return last;
}

// Launches are matched to buckets by payload: their order is another claim.
std::int64_t take_launch(std::vector<RecordedOperation>& launched, const Payload& payload) {
  const auto at = std::ranges::find_if(launched, [&](const RecordedOperation& operation) {
    return operation.bytes == payload.bytes && operation.dtype == payload.dtype;
  });
  if (at == launched.end()) {
    return -1;
  }
  const std::int64_t position = at->launched;
  launched.erase(at);
  return position;
}

// A bucket must be launched after its last gradient, and as soon as that is ready and the previous
// bucket has been launched: before the next gradient is ready, or in finish() if a gradient never
// came.
void expect_moments(const std::vector<NamedTensor>& parameters, const Plan& plan,
                    const WatchedStep& step, const std::string& what) {
  const auto payloads = payloads_of(plan, parameters);
  auto launched = step.launched;
  std::size_t may_start = 0;  // index in `ready` at which all buckets so far may have been launched
  for (std::size_t b = 0; b < plan.size(); ++b) {
    const std::string bucket = "bucket " + std::to_string(b) + " of " + to_string(plan);
    const std::int64_t position = take_launch(launched, payloads[b]);
    ASSERT_GE(position, 0) << bucket << " was never launched (" << what << ")";
    const auto last = last_ready(step.ready, plan[b]);
    if (!last) {
      may_start = step.ready.size();
    }
    const std::int64_t not_before = last ? step.ready[*last].position : step.backward_ended;
    EXPECT_GT(position, not_before)
        << bucket << " was launched before its last gradient was ready (" << what << ")";
    may_start = std::max(may_start, last.value_or(0));
    if (may_start < step.ready.size()) {
      const auto next = may_start + 1;
      const std::int64_t before =
          next < step.ready.size() ? step.ready[next].position : step.backward_ended;
      EXPECT_LT(position, before)
          << bucket
          << " was launched too late: it was complete, and its turn, with the gradient of "
          << parameters[step.ready[may_start].parameter].name << ", but "
          << (position > step.backward_ended
                  ? "backward had ended"
                  : "the gradient of " + parameters[step.ready[next].parameter].name + " was ready")
          << " before it was launched (" << what << ")";
    }
  }
}

void expect_moments_of_chain(Rank& rank, std::int64_t cap_bytes) {
  ChainModel model(rank, {{.elements = 10},
                          {.elements = 20},
                          {.elements = 5, .dtype = at::kDouble},
                          {.elements = 40, .trainable = false},
                          {.elements = 30},
                          {.elements = 9, .dtype = at::kDouble},
                          {.elements = 50}});
  const auto& parameters = model.parameters();
  const Plan plan = plan_of(parameters, cap_bytes);
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(parameters), {}, rank.group());
  const std::string cap = "a chain of layers, cap " + std::to_string(cap_bytes) + " bytes";
  for (int step = 0; step < 3; ++step) {
    clear_gradients(trainable(parameters), /*to_none=*/step == 1);
    if (step == 2) {
      const NoSync scope(*synchronizer);
      model.loss(step).backward();
    }
    expect_moments(
        parameters, plan,
        watch_step(rank, parameters, *synchronizer, [&] { model.loss(step).backward(); }),
        cap +
            (step == 2 ? ", after a micro-batch inside NoSync" : ", step " + std::to_string(step)));
  }
}

// If gradients come in an order other than the plan's, one of them may complete several buckets.
void expect_moments_of_other_order(Rank& rank, std::int64_t cap_bytes) {
  const BranchingModel model(rank, {3, 5, 7, 11, 13, 17});
  const auto& parameters = model.parameters();
  const Plan plan = plan_of(parameters, cap_bytes);
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(parameters), {}, rank.group());
  const std::vector<std::vector<std::size_t>> orders = {
      {0, 1, 3, 5, 4, 2}, {0, 5, 4, 3, 2, 1}, {2, 1, 4, 5}, {0, 2, 3, 4, 5}, {0, 1, 2, 3, 4}};
  for (std::size_t step = 0; step < orders.size(); ++step) {
    clear_gradients(parameters, /*to_none=*/step % 2 == 0);
    expect_moments(parameters, plan,
                   watch_step(rank, parameters, *synchronizer,
                              [&] { model.loss(orders[step], static_cast<int>(step)).backward(); }),
                   "gradients in another order than planned, step " + std::to_string(step) +
                       ", cap " + std::to_string(cap_bytes) + " bytes");
  }
}

void expect_moments_of_toy_model(Rank& rank, ToyKind kind, std::int64_t cap_bytes) {
  Trainee trainee(rank, kind, toy_options(rank, at::kFloat), bucketed(cap_bytes));
  const auto named = trainee.model->named_parameters();
  expect_moments(named, plan_of(named, cap_bytes),
                 watch_step(rank, named, *trainee.synchronizer, [&] { trainee.backward(0); }),
                 "model: " + to_string(kind) + ", cap " + std::to_string(cap_bytes) + " bytes");
}

const GradedTest kInstant{
    {.name = "a_bucket_starts_with_its_last_gradient",
     .points = 3,
     .hint = "The hook of a bucket's last gradient launches the bucket, if it is its turn, and "
             "then all full buckets that have waited for it. finish() is too late for that."},
    [] {
      run_worlds({2, 3}, [](Rank& rank) {
        for (const std::int64_t cap : {1, 100, 250, 1 << 20}) {
          expect_moments_of_chain(rank, cap);
          expect_moments_of_other_order(rank, cap);
          expect_moments_of_toy_model(rank, ToyKind::kMlp, cap);
          expect_moments_of_toy_model(rank, ToyKind::kTiedWeights, cap);
        }
      });
    }};

// While completions are held back, the harness finds and reports any wait.
void expect_no_wait_in_backward(Rank& rank, ToyKind kind, std::int64_t cap_bytes) {
  Trainee trainee(rank, kind, toy_options(rank, at::kFloat), bucketed(cap_bytes));
  for (int step = 0; step < 2; ++step) {
    rank.recorder().clear();
    {
      const HeldCompletions held(*rank.checked());
      trainee.backward(step);
      EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
          << "backward launched no all-reduce, so there was nothing to wait for (model: "
          << to_string(kind) << ", cap " << cap_bytes << " bytes)";
    }
    trainee.synchronizer->finish();
    const auto pending = rank.checked()->pending();
    EXPECT_TRUE(pending.empty()) << "finish() has returned, but nobody has waited for "
                                 << pending.front();
  }
}

const GradedTest kNoWaits{
    {.name = "nothing_waits_inside_backward",
     .points = 1,
     .hint = "A hook launches and returns. It must not wait for any result, not even to launch the "
             "next bucket or to end the last step; finish() waits for all."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "completions are held back on the CPU only";
      }
      run_worlds({2, 3}, [](Rank& rank) {
        for (const std::int64_t cap : {1, 300}) {
          for (const ToyKind kind :
               {ToyKind::kMlp, ToyKind::kFrozenBias, ToyKind::kTiedWeights, ToyKind::kBatchNorm}) {
            expect_no_wait_in_backward(rank, kind, cap);
          }
        }
      });
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_bucket_in_flight",
     .points = 1,
     .hint = "From its launch to its wait() a bucket's flat tensor belongs to the network: write "
             "no gradient into it, divide it before or after, and read nothing from it."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "buffers in flight are watched on the CPU only";
      }
      RankOptions options;
      options.watch_accesses = true;
      run_worlds(
          {2, 3},
          [](Rank& rank) {
            for (const std::int64_t cap : {1, 300, 1 << 20}) {
              Trainee trainee(rank, ToyKind::kMlp, toy_options(rank, at::kFloat), bucketed(cap));
              for (int step = 0; step < 4; ++step) {
                clear_gradients(trainee.parameters, /*to_none=*/step % 2 == 1);
                rank.recorder().clear();
                trainee.backward(step);
                trainee.synchronizer->finish();
                EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
                    << "there was no all-reduce, so there was nothing to watch";
              }
            }
          },
          options);
    }};

}  // namespace

}  // namespace ddp::testing
