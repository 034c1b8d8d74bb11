#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "06_sharded_optimizer/sharded_optimizer.h"
#include "grader/evidence_view.h"
#include "grader/training_scenarios.h"

namespace ddp::testing {

/// What ranks do with buckets of some 300 bytes, of one parameter each, and of one for each dtype; the
/// simplest first. All ranks compute the same gradients in the same order.
std::vector<Scenario> same_order();

/// All of these, and ranks that take different branches, or use layers in other orders.
std::vector<Scenario> overlapping();

/// With overlap = false.
std::vector<Scenario> without_overlap();

/// Of which no sum is rounded.
std::vector<Scenario> exact();

/// With clip_grad_norm() in each step.
std::vector<Scenario> clipping();

/// Toy models with real layers, in plain SGD.
std::vector<Scenario> small_models();
std::vector<Scenario> branching_models();

/// Models of layers that take time, with several caps.
std::vector<Scenario> timed();

std::vector<Scenario> misuse();
std::vector<Scenario> destruction();
std::vector<Scenario> memory();

// What they are made of.

/// What sharded() tells beside a Training: the plan, and "overlap" or "no overlap"
/// (grader/buckets.h); what the optimizer is, and what the caller does;
constexpr ValueKey kInner{"inner"}, kMaxNorm{"max norm"}, kSlows{"slows"};
constexpr ValueKey kOverwritten{"overwritten"};
/// of each shard that the factory is given its elements and dtype, or that it is no good one, and
/// what is in it after construction, by bucket;
constexpr FactKey kShardMade{"shard"}, kNoShard{"shard that is not a flat leaf with a gradient"};
constexpr ValueKey kShard{"shard"};
/// and in each step, by place in the list of parameters, gradients that are still there when
/// finish() begins, or when it ends; each step of an inner optimizer; the norm; and parameters,
/// which are kUpdated then, that have another storage.
constexpr FactKey kGradientIsKept{"gradient is kept"}, kGradientIsLeft{"gradient is left"};
constexpr FactKey kUpdate{"update"}, kElsewhere{"elsewhere after step()"};
constexpr ValueKey kReturnedNorm{"norm"};

enum class Inner { kSgd, kMomentum, kAdamW };

/// A text of scenarios that call step() finish(), and know one operation.
std::string in_own_words(std::string text);

/// An optimizer over `parameters`; `stepped` is called with its elements when it has taken a step, after
/// which its learning rate is halved if it `slows`, as a caller's would be.
std::unique_ptr<torch::optim::Optimizer> make_inner(
    Inner inner, std::vector<at::Tensor> parameters,
    const std::function<void(std::int64_t elements)>& stepped = nullptr, bool slows = false);

/// That of toy_scenario(), for plain SGD.
constexpr double learning_rate(Inner inner) { return inner == Inner::kSgd ? 0.1 : 0.125; }

struct Form {
  ShardedOptimizerOptions options = {};
  Inner inner = Inner::kMomentum;
  double max_norm = 0;  // none
  bool slows = false;
};

/// Calls this stage's factory, and makes what it returns a synchronizer, whose finish() clips and
/// steps. Tells what is listed above.
Factory sharded(const Form& form);

/// Tests that are charged with scenarios.
constexpr const char* kEndTest = "parameters_end_where_the_unsharded_optimizer_ends";
constexpr const char* kOrderTest = "buckets_start_in_plan_order";
constexpr const char* kAccumulationTest = "gradients_accumulate_inside_no_sync";
constexpr const char* kNormTest = "the_norm_is_over_all_shards";
constexpr const char* kNoOverlapTest = "without_overlap_nothing_is_launched_before_step";
constexpr const char* kMemoryTest = "shards_take_one_nth_of_the_memory";
constexpr const char* kErrorsTest = "errors_come_before_communication";
constexpr const char* kDestructionTest = "destruction_unhooks";

SynchronizerUnderTest subject(const Form& form, const std::string& name = "");

}  // namespace ddp::testing
