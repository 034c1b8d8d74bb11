#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "branching_model.h"
#include "plan.h"
#include "support/chain_model.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

// What is communicated, and in which order. The next file checks when.

namespace ddp::testing {

namespace {

constexpr std::int64_t kEach = 1;
constexpr std::int64_t kSome = 300;
constexpr std::int64_t kOne = std::int64_t{25} << 20;

std::int64_t total(const std::vector<Payload>& payloads) {
  return std::accumulate(
      payloads.begin(), payloads.end(), std::int64_t{0},
      [](std::int64_t sum, const Payload& payload) { return sum + payload.bytes; });
}

// Describes the kind of difference, if it can be told.
std::string diagnosis(const std::vector<Payload>& actual, const std::vector<Payload>& expected) {
  const std::int64_t more = total(actual) - total(expected);
  if (actual.size() < expected.size()) {
    return std::to_string(expected.size() - actual.size()) + " of the buckets were not reduced";
  }
  if (actual.size() > expected.size()) {
    return "more all-reduces than there are buckets";
  }
  if (more > 0) {
    return std::to_string(more) + " bytes more than the gradients have: padding, or a wider dtype?";
  }
  return more == 0 ? "the same bytes in all, but in other buckets or dtypes"
                   : std::to_string(-more) + " bytes fewer than the gradients have";
}

// Each bucket once; their order is another claim.
void expect_each_bucket_once(Rank& rank, const std::vector<RecordedOperation>& operations,
                             std::vector<Payload> expected, const std::string& when) {
  std::vector<Payload> actual = payloads_of(all_reduces(operations));
  if (rank.world_size() == 1 && actual.empty()) {
    return;  // there is no other rank to reduce with
  }
  const auto by = [](const Payload& payload) { return std::pair(payload.bytes, payload.dtype); };
  std::ranges::sort(actual, {}, by);
  std::ranges::sort(expected, {}, by);
  EXPECT_TRUE(actual == expected) << when << ": " << diagnosis(actual, expected)
                                  << ". Expected, sorted: " << to_string(expected)
                                  << "; got: " << to_string(actual);
}

// finish() cannot know what is ready on other ranks, so it reduces even if nothing is new here.
// Doing nothing on all ranks is accepted here as well.
void expect_finish_alone(Rank& rank, GradientSynchronizer& synchronizer,
                         const std::vector<Payload>& expected, const std::string& when) {
  rank.recorder().clear();
  synchronizer.finish();
  const auto operations = rank.recorder().operations();
  if (!operations.empty()) {
    expect_each_bucket_once(rank, operations, expected, when + ", finish() without a backward");
  }
}

void expect_payloads_of_steps(Rank& rank, ToyKind kind, std::int64_t cap_bytes) {
  Trainee trainee(rank, kind, toy_options(rank, at::kFloat), bucketed(cap_bytes));
  const auto named = trainee.model->named_parameters();
  const auto expected = payloads_of(plan_of(named, cap_bytes), named);
  const std::string model =
      "model: " + to_string(kind) + ", cap: " + std::to_string(cap_bytes) + " bytes";
  for (int step = 0; step < 3; ++step) {
    clear_gradients(trainee.parameters, /*to_none=*/step == 1);
    rank.recorder().clear();
    trainee.backward(step);
    trainee.synchronizer->finish();
    const auto operations = rank.recorder().operations();
    expect_each_bucket_once(rank, operations, expected,
                            "step " + std::to_string(step) + " (" + model + ")");
    expect_same_order_everywhere(rank, operations);
  }
  expect_finish_alone(rank, *trainee.synchronizer, expected, model);
  rank.recorder().clear();
  const NoSync scope(*trainee.synchronizer);
  trainee.backward(0);
  trainee.synchronizer->finish();
  expect_silence(rank, "a step inside a NoSync scope");
}

void expect_payloads_of_mixed_dtypes(Rank& rank, std::int64_t cap_bytes) {
  ChainModel model(rank, {{.elements = 12, .dtype = at::kDouble},
                          {.elements = 7, .dtype = at::kHalf},
                          {.elements = 5},
                          {.elements = 9, .trainable = false},
                          {.elements = 3, .dtype = at::kHalf},
                          {.elements = 8, .dtype = at::kDouble},
                          {.elements = 1}});
  const auto expected = payloads_of(plan_of(model.parameters(), cap_bytes), model.parameters());
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(model.parameters()), {}, rank.group());
  rank.recorder().clear();
  const at::Tensor loss = model.loss(0);
  expect_silence(rank, "forward");
  loss.backward();
  synchronizer->finish();
  expect_each_bucket_once(rank, rank.recorder().operations(), expected,
                          "a model of mixed dtypes (cap: " + std::to_string(cap_bytes) + " bytes)");
}

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_bucket",
     .points = 2,
     .hint = "Each finish() outside NoSync leaves every bucket of the plan reduced once: a flat "
             "tensor of exactly its elements, in its own dtype. Nothing else is sent."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          if (kind == ToyKind::kRankBranch) {
            continue;  // see buckets_start_in_plan_order
          }
          for (const std::int64_t cap : {kEach, kSome, kOne}) {
            expect_payloads_of_steps(rank, kind, cap);
          }
        }
        for (const std::int64_t cap : {kEach, std::int64_t{60}, kOne}) {
          expect_payloads_of_mixed_dtypes(rank, cap);
        }
      });
    }};

// Buckets must be launched in the order of the plan.
void expect_plan_order(const std::vector<RecordedOperation>& operations,
                       const std::vector<Payload>& expected, const std::string& when) {
  const auto actual = payloads_of(all_reduces(operations));
  EXPECT_TRUE(actual == expected)
      << when << ": the buckets were not launched in the order of the plan, in which one that is "
      << "full early waits its turn. Expected: " << to_string(expected)
      << "; got: " << to_string(actual);
}

using Order = std::vector<std::size_t>;

// One step: each rank uses the weights of its own `order`, or runs no backward if that is empty.
// Gradients and the order of launches must be right.
void expect_step(Rank& rank, const BranchingModel& model, GradientSynchronizer& synchronizer,
                 const std::vector<Payload>& expected, const std::vector<Order>& order_of_rank,
                 int step) {
  const auto& parameters = model.parameters();
  clear_gradients(parameters, /*to_none=*/step == 0);
  rank.recorder().clear();
  if (!order_of_rank[rank.rank()].empty()) {
    model.loss(order_of_rank[rank.rank()], step).backward();
  }
  synchronizer.finish();
  expect_plan_order(rank.recorder().operations(), expected,
                    "step " + std::to_string(step) + " of weights that are used in another order");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor mean = at::zeros_like(parameters[i].tensor).detach();
    for (int other = 0; other < rank.world_size(); ++other) {
      if (std::ranges::find(order_of_rank[other], i) != order_of_rank[other].end()) {
        mean = mean + model.gradient(i, other, step) / rank.world_size();
      }
    }
    EXPECT_TRUE(is_close({"the gradient of " + parameters[i].name +
                              ", which not all ranks use at "
                              "the same place, in step " +
                              std::to_string(step) + ",",
                          rank.world_size()},
                         or_zero(parameters[i].tensor.grad(), parameters[i].tensor), mean, 1e-10));
  }
}

// `order` rotated by the rank's number.
Order turned(Order order, int rank) {
  std::rotate(order.begin(), order.begin() + rank % static_cast<int>(order.size()), order.end());
  return order;
}

void expect_one_order(Rank& rank, std::int64_t cap_bytes) {
  const BranchingModel model(rank, {3, 5, 7, 11, 13, 17});
  const auto expected = payloads_of(plan_of(model.parameters(), cap_bytes), model.parameters());
  const auto synchronizer = bucketed(cap_bytes)(tensors_of(model.parameters()), {}, rank.group());
  const std::vector<std::function<Order(int)>> order_of_rank = {
      [](int) { return Order{3, 5, 4, 0, 2, 1}; },  // the same on all ranks, but not the plan's
      [](int other) {
        return turned({0, 1, 2, 3, 4, 5}, other);
      },  // different on each rank
      [](int other) {
        return turned({5, 2, 4, 1, 3, 0}, other);
      },
      [](int other) {
        return Order{static_cast<std::size_t>(other), 5};
      },  // ranks take different branches
      [](int other) {
        return other == 0 ? Order{} : Order{1, 4, 5};
      }};  // no backward on rank 0
  for (std::size_t step = 0; step < order_of_rank.size(); ++step) {
    std::vector<Order> orders;
    orders.reserve(rank.world_size());
    for (int other = 0; other < rank.world_size(); ++other) {
      orders.push_back(order_of_rank[step](other));
    }
    expect_step(rank, model, *synchronizer, expected, orders, static_cast<int>(step));
  }
}

void expect_branches_of_toy_model(Rank& rank, std::int64_t cap_bytes) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    Trainee trainee(rank, ToyKind::kRankBranch, toy_options(rank, dtype), bucketed(cap_bytes));
    Oracle oracle(ToyKind::kRankBranch, trainee.options, rank.world_size());
    const auto named = trainee.model->named_parameters();
    rank.recorder().clear();
    trainee.backward(0);
    trainee.synchronizer->finish();
    expect_plan_order(rank.recorder().operations(), payloads_of(plan_of(named, cap_bytes), named),
                      "a step of a model with a branch that only odd ranks take");
    expect_mean_gradients(trainee, oracle, rank.world_size());
  }
}

const GradedTest kOneOrder{
    {.name = "buckets_start_in_plan_order",
     .points = 2,
     .hint = "Which bucket is next is one number, the same on all ranks. A bucket that is full "
             "before its turn waits; finish() launches the rest in the same order."},
    [] {
      run_worlds({2, 3, 4}, [](Rank& rank) {
        for (const std::int64_t cap : {kEach, std::int64_t{140}, kSome, kOne}) {
          expect_one_order(rank, cap);
          expect_branches_of_toy_model(rank, cap);
        }
      });
    }};

// The same buckets in the same order. Whether each is waited for before the next launch shows in
// the time of a step: see 06_timing.cpp.
void expect_same_buckets(Rank& rank, const std::vector<RecordedOperation>& operations,
                         const std::vector<Payload>& expected, const std::string& what) {
  const auto launched = all_reduces(operations);
  if (rank.world_size() == 1 && launched.empty()) {
    return;
  }
  const auto actual = payloads_of(launched);
  EXPECT_TRUE(actual == expected)
      << "overlap = false should reduce the same buckets in the same order (" << what
      << "). Expected: " << to_string(expected) << "; got: " << to_string(actual);
}

void expect_no_overlap(Rank& rank, ToyKind kind, std::int64_t cap_bytes) {
  Trainee trainee(rank, kind, toy_options(rank, at::kDouble),
                  bucketed({.cap_bytes = cap_bytes, .overlap = false}));
  const std::string what =
      "model: " + to_string(kind) + ", cap: " + std::to_string(cap_bytes) + " bytes";
  Oracle oracle(kind, trainee.options, rank.world_size());
  const auto named = trainee.model->named_parameters();
  const auto expected = payloads_of(plan_of(named, cap_bytes), named);
  for (const bool to_none : {true, false}) {
    clear_gradients(trainee.parameters, to_none);
    rank.recorder().clear();
    trainee.backward(0);
    expect_silence(rank, "forward or backward with overlap = false (" + what + ")");
    trainee.synchronizer->finish();
    expect_same_buckets(rank, rank.recorder().operations(), expected, what);
    expect_mean_gradients(trainee, oracle, rank.world_size());
  }
  clear_gradients(trainee.parameters, /*to_none=*/true);
  rank.recorder().clear();
  const NoSync scope(*trainee.synchronizer);
  trainee.backward(0);
  trainee.synchronizer->finish();
  expect_silence(rank, "a step inside a NoSync scope with overlap = false");
}

const GradedTest kNoOverlap{
    {.name = "without_overlap_buckets_are_reduced_after_backward",
     .points = 1,
     .hint = "overlap = false: nothing is launched before finish(), which reduces the buckets of "
             "the same plan in the same order."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          for (const std::int64_t cap : {kEach, kSome, kOne}) {
            expect_no_overlap(rank, kind, cap);
          }
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
