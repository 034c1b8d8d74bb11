#include "claims.h"

#include "grader/calls.h"
#include "grader/grading.h"
#include "grader/settings.h"
#include "grader/toy_scenarios.h"
#include "grader/training_claims.h"
#include "grader/training_scenarios.h"
#include "scenarios.h"

// What must be true of all that the ranks did, in every scenario.

namespace ddp::testing {

namespace {

Predicate worded(const Predicate& violation) {
  return [violation](const Evidence& evidence) {
    Finding finding = violation ? violation(evidence) : Finding();
    finding.text = in_own_words(finding.text);
    return finding;
  };
}

// In this stage's words.
void judge_worded(const std::vector<Scenario>& scenarios, const Predicate& violation,
                  const Predicate& unless = nullptr) {
  judge(scenarios, worded(violation), worded(unless));
}

// kEnd says of the simplest steps where they end, and what is wrong there is no other test's mistake.
Predicate values_too(const Predicate& violation) {
  return only_where(same_order()[0], parameters_are_the_unsharded_optimizers, violation);
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .title = "Construction broadcasts rank 0's state",
     .points = 1,
     .hint = "As in stage 03: parameters, frozen ones too, and buffers, bit for bit, in place. "
             "Then the shards: a flat leaf for each bucket, of its padded N-th.",
     .more = "Broadcasting is stage 03's. For the shards write down, for a bucket of 850 elements "
             "and three ranks: how long is the padded bucket, how long a shard, which elements "
             "are rank 2's? The factory gets a list of one tensor, which is a leaf, flat, and "
             "requires a gradient: does at::zeros with options make one that does?"},
    [] {
      judge_worded(overlapping(), all_of({state_is_rank_0s, each_bucket_has_a_shard}));
      judge_worded(without_overlap(), all_of({state_is_rank_0s, each_bucket_has_a_shard}));
    }};

const GradedTest kEnd{
    {.name = "parameters_end_where_the_unsharded_optimizer_ends",
     .title = "Parameters end where the unsharded optimizer ends",
     .points = 3,
     .hint =
         "Follow one element: its place in the padded bucket, the rank that owns its chunk, the "
         "shard's gradient (the mean), the optimizer, and back to the same place.",
     .more = "Take one layer, one step, plain SGD, and print for one element: its gradient on "
             "each rank, its place in the flat bucket, the shard's gradient at that place, the "
             "shard before and after. The first number that one process would not have tells. "
             "Half or a p-th too large: who divides? Right on rank 0 only: which rank's chunk is "
             "it, by the group's numbering? Wrong only where gradients are missing: what does the "
             "flat bucket hold there?"},
    [] {
      judge_worded(overlapping(),
                   all_of({parameters_are_the_unsharded_optimizers, ranks_have_the_same_bits,
                           parameters_stay_in_place, surroundings_are_left_alone}),
                   misused_in_flight);
      judge_worded(small_models(), training_ends_at_the_oracle({same_order_models()}),
                   misused_in_flight);
      judge_worded(exact(), parameters_are_the_same_bits, misused_in_flight);
    }};

const GradedTest kOneEach{
    {.name = "each_bucket_is_reduced_and_gathered_once",
     .title = "Each bucket is reduced and gathered once",
     .points = 1,
     .hint =
         "A step makes one reduce-scatter and one all-gather for each bucket, padded to a multiple "
         "of the ranks: together the bytes of one all-reduce. Nothing else is sent.",
     .more = "Compare the listed bytes with the plan, padded. Fewer: is a bucket due of which "
             "this rank has no gradient? More: is one reduced by a hook and again by step(), or "
             "by clip_grad_norm() and again by step()? Anything else that is sent costs time on "
             "4,096 ranks."},
    [] {
      judge_worded(overlapping(), in_each_step(each_bucket_once));
      judge_worded(clipping(), in_each_step(each_bucket_once));
    }};

const GradedTest kOrder{
    {.name = "buckets_start_in_plan_order",
     .title = "Buckets start in the plan's order",
     .points = 2,
     .hint = "Which bucket is next is one number, the same on all ranks; step() starts what is "
             "left, in the same order, before it waits. All-gathers follow, in the same order.",
     .more = "As in stage 03: which number says whose turn it is, and who looks again at buckets "
             "that were complete early? step() has two loops over buckets: one launches what is "
             "left, and only then one waits."},
    [] {
      judge_worded(overlapping(), in_each_step(in_plan_order));
      judge_worded(branching_models(),
                   values_too(training_ends_at_the_oracle({{ToyKind::kRankBranch}})),
                   misused_in_flight);
    }};

const GradedTest kInstant{
    {.name = "a_reduce_scatter_starts_with_its_last_gradient",
     .title = "A reduce-scatter starts with its last gradient",
     .points = 2,
     .hint = "The hook of a bucket's last gradient starts it, and lets the "
             "gradients go: from then on a "
             "rank needs its own chunk alone.",
     .more = "One gradient late: is the bucket counted before or after it is filled? Only in "
             "step(): what should have reset the counts? If a gradient is said to be still there: "
             "the bucket has a copy since the hook ran, so parameter.grad() is memory that nobody "
             "needs."},
    [] { judge_worded(overlapping(), in_each_step(with_its_last_gradient)); }};

const GradedTest kNoWaits{
    {.name = "nothing_waits_inside_backward",
     .title = "Nothing waits inside backward",
     .points = 1,
     .hint = "A hook starts a reduce-scatter and returns. step() and clip_grad_norm() wait.",
     .more = "Look for wait(), for a blocking collective, and for anything that asks for a value "
             "(item()) in a hook. The result of a reduce-scatter is needed in step() at the "
             "earliest."},
    [] {
      judge_worded(overlapping(), backward_never_waits);
      judge_worded(small_models(), backward_never_waits);
      judge_worded(misuse(), backward_never_waits);
      judge_worded(named(same_order(), {"three layers, three steps", "310 layers"}),
                   backward_launches);
    }};

const GradedTest kGather{
    {.name = "an_all_gather_starts_with_its_update",
     .title = "An all-gather starts with its update",
     .points = 1,
     .hint = "As soon as a shard is new it can be on its way, while the next "
             "bucket's optimizer works.",
     .more = "How many loops over buckets does step() have after the means are there? If one "
             "updates and another gathers, the network has nothing to do during the updates."},
    [] {
      judge_worded(overlapping(), in_each_step(with_its_update));
      judge_worded(clipping(), in_each_step(with_its_update));
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_tensor_in_flight",
     .title = "Nothing touches a tensor in flight",
     .points = 1,
     .hint = "From launch to wait a bucket, a shard and its gradient belong to the network.",
     .more = "There are four tensors that may be in flight: the flat gradients, the shard's "
             "gradient, the shard, the flat parameters. For each: which line launches, which "
             "waits, and what stands between?"},
    [] {
      judge_worded(overlapping(), all_of({buffers_in_flight_are_left_alone, every_step_reduces}));
      judge_worded(without_overlap(), buffers_in_flight_are_left_alone);
      judge_worded(clipping(), buffers_in_flight_are_left_alone);
      judge_worded(small_models(), buffers_in_flight_are_left_alone);
    }};

const GradedTest kAccumulation{
    {.name = "gradients_accumulate_inside_no_sync",
     .title = "Gradients accumulate inside NoSync",
     .points = 1,
     .hint =
         "Inside NoSync hooks launch nothing, and whole gradients add up. step() reduces what each "
         "gradient holds, whether or not the last backward called its hook.",
     .more = "Inside the scope a hook does nothing at all: then autograd adds up in "
             "parameter.grad(). Which of these gradients does the last backward reach, and who "
             "takes the others?"},
    [] {
      judge_worded(overlapping(), all_of({every_step_reduces, no_sync_is_silent}));
      judge_worded(without_overlap(), no_sync_is_silent);
    }};

const GradedTest kNorm{
    {.name = "the_norm_is_over_all_shards",
     .title = "The norm is over all shards",
     .points = 1,
     .hint =
         "Each rank adds the squares of its own shards' gradients; one all-reduce of one float64 "
         "number makes it everybody's. Then every rank scales by the same factor.",
     .more = "Is it the norm of the means or of this rank's gradients? The sum of norms, or the "
             "root of the sum of squares? Does the padding add to it? And are the squares summed "
             "in a dtype that can hold them?"},
    [] {
      judge_worded(clipping(), all_of({norm_is_that_of_the_means,
                                       values_too(parameters_are_the_unsharded_optimizers),
                                       ranks_have_the_same_bits}));
    }};

const GradedTest kNoOverlap{
    {.name = "without_overlap_nothing_is_launched_before_step",
     .title = "Without overlap, nothing starts before step()",
     .points = 1,
     .hint =
         "overlap = false: step() reduces the buckets of the same plan, then updates and gathers "
         "them, and waits for each operation before the next.",
     .more = "Without hooks everything is missing when step() comes. Then each operation is "
             "waited for before the next is launched: reduce-scatters first, then update, "
             "all-gather, update, all-gather."},
    [] {
      judge_worded(without_overlap(),
                   all_of({in_each_step(after_backward_one_by_one), in_each_step(each_bucket_once),
                           in_each_step(in_plan_order), in_each_step(with_its_update),
                           values_too(parameters_are_the_unsharded_optimizers),
                           ranks_have_the_same_bits, every_step_reduces}),
                   misused_in_flight);
    }};

const GradedTest kMemory{
    {.name = "shards_take_one_nth_of_the_memory",
     .title = "Shards take one Nth of the memory",
     .points = 2,
     .hint = "Between steps only shards, one gradient each and optimizer state stay. Let flat "
             "buckets go as soon as their operation is done, and gradients when their bucket has "
             "them.",
     .more = "List what is alive when step() has returned: per bucket a shard, its gradient, the "
             "optimizer's numbers. What else is there, and which member or handle keeps it? "
             "Within a step the flat gradients may take the parameters' bytes once; not while the "
             "flat parameters take them, too."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      judge_worded(
          memory(),
          all_of({[](const Evidence& evidence) { return memory_is_bounded(evidence); },
                  [](const Evidence& evidence) { return growth_in_steps(evidence, 20); }}));
      judge_worded(overlapping(), all_of({nothing_grows, every_step_reduces}));
    }};

const GradedTest kDestruction{
    {.name = "destruction_unhooks",
     .title = "Destruction removes the hooks",
     .points = 1,
     .hint = "The handles of on_gradient_ready() keep the hooks: let only the optimizer own them.",
     .more = "As in stages 02 and 03: draw who keeps whom alive. A hook that captures a "
             "shared_ptr is the usual circle."},
    [] {
      judge_worded(destruction(), destruction_ends_everything);
      judge_worded(misuse(), destruction_is_silent);
    }};

const GradedTest kErrors{
    {.name = "errors_come_before_communication",
     .title = "Errors come before communication",
     .points = 1,
     .hint = "TORCH_CHECK() what the header lists, before the first "
             "broadcast: the factory, too, can be called before it, since a "
             "shard's values may come later.",
     .more = "For each error: has this rank sent anything when it is noticed? The factory's "
             "result can be looked at before the first broadcast if the shard gets its values "
             "later. Inside NoSync, and for a max_norm that is not positive, throw before "
             "reducing. Which dtype has a parameter now, and which its bucket, also where it "
             "has no gradient? Is a gradient that a hook has counted counted again?"},
    [] { judge_worded(misuse(), misuse_is_refused); }};

}  // namespace

}  // namespace ddp::testing
