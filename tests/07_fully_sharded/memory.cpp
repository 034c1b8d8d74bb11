#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "cases.h"
#include "ddp/referee/client.h"
#include "grader/memory_account.h"
#include "grader/training_claims.h"
#include "scenarios.h"

// What a rank's tensors take, to the byte: units of equal size, whose functions take little.

namespace ddp::testing {

namespace {

constexpr std::int64_t kUnits = 10;
constexpr std::int64_t kElements = 4 * 1200;
constexpr std::int64_t kUnit = kElements * 4;
constexpr std::int64_t kInput = 256;  // elements, and of each unit's result
constexpr std::int64_t kResults = 3 * kInput * 4;

// What is done over and over: steps, some of them inside NoSync, or after a forward without backward; or evaluation,
// also from the last unit to the first, and with every other unit, where those between and the last one have been
// gathered for nobody.
enum class Loop { kSteps, kNoSync, kTwoForwards, kEvaluation, kReverse, kEveryOther };

// The units that forward() is called with.
std::vector<std::size_t> uses_in(Loop loop) {
  std::vector<std::size_t> uses;
  const std::size_t end = loop == Loop::kTwoForwards ? 2 * kUnits : kUnits;
  for (std::size_t i = 0; i < end; i += loop == Loop::kEveryOther ? 2 : 1) {
    uses.push_back(loop == Loop::kReverse ? kUnits - 1 - i : i % kUnits);
  }
  return uses;
}

constexpr int kMany = 3 * kStepsBetweenCounts + 1;
constexpr int kFew = 3;

// Sums the squares: backward needs the parameters again. Little is left but the unit's gradient.
at::Tensor sum_of_squares(const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
  at::Tensor sum = x;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor flat = parameter.reshape({-1});
    sum = sum + at::dot(flat, flat) * 1e-6;
  }
  return sum;
}

std::vector<Unit> equal_units() {
  std::vector<Unit> units;
  for (std::int64_t i = 0; i < kUnits; ++i) {
    at::Tensor weight = at::ones({4, 900}).set_requires_grad(true);
    at::Tensor bias = at::ones({1200}).set_requires_grad(true);
    units.push_back({{weight, bias}, sum_of_squares});
  }
  return units;
}

// Of units of which a rank has shards. Beside them there may be gradients, and so many whole units.
class Account : public MemoryAccount {
 public:
  Account(Client& client, std::int64_t shards)
      : MemoryAccount(client, {{kUnit, "a unit that is whole, or its flat gradient"},
                               {kUnit * 3 / 4, "a unit's weight, or its gradient"},
                               {kUnit / 4, "a shard or its gradient, or a unit's bias"}}),
        shards_(shards) {}

  void within(const char* what, std::int64_t units_allowed, std::int64_t gradients) {
    peak(what, shards_ + gradients + units_allowed * kUnit + kResults);
  }
  void between(const char* what, std::int64_t gradients) { held(what, shards_ + gradients); }

 private:
  const std::int64_t shards_;
};

void account(Client& client, const FullyShardedOptions& options, Loop loop, int steps) {
  const std::int64_t shards = kUnits * kUnit / client.world().ranks;
  Account account(client, shards);
  std::unique_ptr<FullySharded> model;
  {
    const std::vector<Unit> given = equal_units();  // as a caller's modules have them
    model = make_fully_sharded(given, make_group(client.shared_from_this()), options);
    account.within("the given parameters, the shards and construction's tensors", kUnits + 2, 0);
  }
  account.reset();
  account.between("the shards between construction and steps", 0);
  const bool root = client.rank() == 0;
  static_cast<void>(model->whole_parameters(0));
  account.within(root ? "the copies, the shards and whole_parameters()'s tensors"
                      : "the shards and whole_parameters()'s tensors",
                 root ? kUnits + 2 : 2, 0);
  const bool trains = loop == Loop::kSteps || loop == Loop::kNoSync || loop == Loop::kTwoForwards;
  const std::vector<std::size_t> uses = uses_in(loop);
  const std::int64_t ahead = std::min<std::int64_t>(1 + options.prefetch, kUnits);
  for (int step = 0; step < steps; ++step) {
    const std::int64_t own = step == 0 ? 0 : shards;  // gradients that were not cleared
    const bool inside = loop == Loop::kNoSync && step % 2 == 0;
    std::optional<NoSync> scope;
    if (inside) {
      scope.emplace(*model);
    }
    const std::int64_t left = loop == Loop::kNoSync ? kUnits : 0;
    {
      const at::AutoGradMode mode(trains);
      at::Tensor x;
      for (const std::size_t i : uses) {
        x = model->forward(i, i == uses[0] ? at::ones({kInput}) : x);
      }
      account.within("the shards and forward's tensors", ahead + (inside ? 0 : left), own);
      if (trains) {
        x.sum().backward();
        // Whoever adds a mean in a callback holds it while the next one comes.
        account.within("the shards, their gradients and backward's tensors", ahead + 4 + left,
                       shards + kUnit / client.world().ranks);
        // A unit may have been gathered for a graph that is gone.
        const std::int64_t units = left + (inside ? 0 : 1) + (loop == Loop::kTwoForwards ? 1 : 0);
        account.between(
            "the shards, their gradients and one in flight between backward and finish()",
            shards + units * kUnit + kUnit / client.world().ranks);
      } else if (loop == Loop::kEvaluation) {
        account.between("the shards between evaluation and finish()", 0);
      }
    }
    scope.reset();
    if (!inside) {
      model->finish();
      account.reset();
      account.between("the shards and their gradients between steps", trains ? shards : 0);
    }
    if (step > 0 && step % kStepsBetweenCounts == 0) {
      account.count();
      client.fact("held: bytes of the heap", heap_bytes());
    }
  }
}

// Unit 3 computes only with one number.
void account_for_exceptions(Client& client) {
  Account account(client, kUnits * kUnit / client.world().ranks);
  std::vector<Unit> units = equal_units();
  units[3].function = [](const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
    return x.numel() == 1 ? sum_of_squares(x, parameters)
                          : throw std::runtime_error("this function throws, as it is to");
  };
  const auto model = make_fully_sharded(std::move(units), make_group(client.shared_from_this()),
                                        {.prefetch = 0, .keep_last = true});
  for (int i = 0; i < kFew; ++i) {
    try {
      model->forward(3, at::ones({2}));
      client.fact("did not throw", 1);
    } catch (const std::runtime_error&) {
      account.between("the shards between an exception of a function and the next call", 0);
    }
  }
}

}  // namespace

std::vector<Scenario> memory() {
  std::vector<Scenario> all;
  const auto add = [&](const std::string& name, const FullyShardedOptions& options, Loop loop,
                       int steps) {
    all.push_back({"memory: " + name,
                   {.ranks = 4, .hold = false},
                   [=](Client& client) { account(client, options, loop, steps); },
                   kHeldTest});
  };
  add("prefetch 1", {}, Loop::kSteps, kFew);
  add("prefetch 0", {.prefetch = 0}, Loop::kSteps, kFew);
  add("prefetch 3", {.prefetch = 3}, Loop::kSteps, kFew);
  add("the last unit is kept", {.prefetch = 1, .keep_last = true}, Loop::kSteps, kFew);
  add("evaluation", {.prefetch = 1, .keep_last = true}, Loop::kEvaluation, kFew);
  add("the last unit is kept, and backward does not come", {.prefetch = 1, .keep_last = true},
      Loop::kTwoForwards, kFew);
  add("evaluation from the last unit to the first", {.prefetch = 2}, Loop::kReverse, kFew);
  add("evaluation with every other unit", {}, Loop::kEveryOther, kFew);
  add("60 steps, every other inside NoSync", {}, Loop::kNoSync, kMany);
  all.push_back({"memory: a function throws",
                 {.ranks = 4, .hold = false},
                 account_for_exceptions,
                 kHeldTest});
  return all;
}

Predicate units_memory_is_bounded(const std::string& which) {
  return [which](const Evidence& evidence) -> Finding {
    Finding found = memory_is_bounded(evidence, which);
    found.text += found.empty() ? "" : " (a unit has " + std::to_string(kUnit) + ")";
    return found;
  };
}

}  // namespace ddp::testing
