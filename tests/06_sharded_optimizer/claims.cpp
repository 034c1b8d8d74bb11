#include "claims.h"

#include "bodies.h"
#include "support/calls.h"
#include "support/grading.h"
#include "support/settings.h"
#include "support/toy_bodies.h"
#include "support/training_bodies.h"
#include "support/training_claims.h"

// What must be true of all that the ranks did, in every body.

namespace ddp::testing {

namespace {

Predicate worded(const Predicate& holds) {
  return [holds](const Evidence& evidence) {
    Finding finding = holds ? holds(evidence) : Finding();
    finding.text = in_own_words(finding.text);
    return finding;
  };
}

// In this stage's words.
void judge_worded(const std::vector<Body>& bodies, const Predicate& holds,
                  const Predicate& unless = nullptr) {
  judge(bodies, worded(holds), worded(unless));
}

// kEnd says of the simplest steps where they end, and what is wrong there is no other test's mistake.
Predicate values_too(const Predicate& holds) {
  return only_where(same_order()[0], parameters_are_the_unsharded_optimizers, holds);
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .points = 1,
     .hint = "As in stage 03: parameters, frozen ones too, and buffers, bit for bit, in place. "
             "Then the shards: a flat leaf for each bucket, of its padded N-th."},
    [] {
      judge_worded(overlapping(), all_of({state_is_rank_0s, each_bucket_has_a_shard}));
      judge_worded(without_overlap(), all_of({state_is_rank_0s, each_bucket_has_a_shard}));
    }};

const GradedTest kEnd{
    {.name = "parameters_end_where_the_unsharded_optimizer_ends",
     .points = 3,
     .hint =
         "Follow one element: its place in the padded bucket, the rank that owns its chunk, the "
         "shard's gradient (the mean), the optimizer, and back to the same place."},
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
     .points = 2,
     .hint =
         "A step makes one reduce-scatter and one all-gather for each bucket, padded to a multiple "
         "of the ranks: together the bytes of one all-reduce. Nothing else is sent."},
    [] {
      judge_worded(overlapping(), in_each_step(each_bucket_once));
      judge_worded(clipping(), in_each_step(each_bucket_once));
    }};

const GradedTest kOrder{
    {.name = "buckets_start_in_plan_order",
     .points = 1,
     .hint = "Which bucket is next is one number, the same on all ranks; step() starts what is "
             "left, in the same order, before it waits. All-gathers follow, in the same order."},
    [] {
      judge_worded(overlapping(), in_each_step(in_plan_order));
      judge_worded(branching_models(),
                   values_too(training_ends_at_the_oracle({{ToyKind::kRankBranch}})),
                   misused_in_flight);
    }};

const GradedTest kInstant{
    {.name = "a_reduce_scatter_starts_with_its_last_gradient",
     .points = 2,
     .hint = "The hook of a bucket's last gradient starts it, and lets the "
             "gradients go: from then on a "
             "rank needs its own chunk alone."},
    [] { judge_worded(overlapping(), in_each_step(with_its_last_gradient)); }};

const GradedTest kNoWaits{
    {.name = "nothing_waits_inside_backward",
     .points = 1,
     .hint = "A hook starts a reduce-scatter and returns. step() and clip_grad_norm() wait."},
    [] {
      judge_worded(overlapping(), backward_never_waits);
      judge_worded(small_models(), backward_never_waits);
      judge_worded(misuse(), backward_never_waits);
      judge_worded(named(same_order(), {"three layers, three steps", "310 layers"}),
                   backward_launches);
    }};

const GradedTest kGather{{.name = "an_all_gather_starts_with_its_update",
                          .points = 1,
                          .hint = "As soon as a shard is new it can be on its way, while the next "
                                  "bucket's optimizer works."},
                         [] {
                           judge_worded(overlapping(), in_each_step(with_its_update));
                           judge_worded(clipping(), in_each_step(with_its_update));
                         }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_tensor_in_flight",
     .points = 1,
     .hint = "From launch to wait a bucket, a shard and its gradient belong to the network."},
    [] {
      judge_worded(overlapping(), all_of({buffers_in_flight_are_left_alone, every_step_reduces}));
      judge_worded(without_overlap(), buffers_in_flight_are_left_alone);
      judge_worded(clipping(), buffers_in_flight_are_left_alone);
      judge_worded(small_models(), buffers_in_flight_are_left_alone);
    }};

const GradedTest kAccumulation{
    {.name = "gradients_accumulate_inside_no_sync",
     .points = 1,
     .hint =
         "Inside NoSync hooks launch nothing, and whole gradients add up. step() reduces what each "
         "gradient holds, whether or not the last backward called its hook."},
    [] {
      judge_worded(overlapping(), all_of({every_step_reduces, no_sync_is_silent}));
      judge_worded(without_overlap(), no_sync_is_silent);
    }};

const GradedTest kNorm{
    {.name = "the_norm_is_over_all_shards",
     .points = 1,
     .hint =
         "Each rank adds the squares of its own shards' gradients; one all-reduce of one float64 "
         "number makes it everybody's. Then every rank scales by the same factor."},
    [] {
      judge_worded(clipping(), all_of({norm_is_that_of_the_means,
                                       values_too(parameters_are_the_unsharded_optimizers),
                                       ranks_have_the_same_bits}));
    }};

const GradedTest kNoOverlap{
    {.name = "without_overlap_nothing_is_launched_before_step",
     .points = 1,
     .hint =
         "overlap = false: step() reduces the buckets of the same plan, then updates and gathers "
         "them, and waits for each operation before the next."},
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
     .points = 2,
     .hint = "Between steps only shards, one gradient each and optimizer state stay. Let flat "
             "buckets go as soon as their operation is done, and gradients when their bucket has "
             "them."},
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
     .points = 1,
     .hint = "The handles of on_gradient_ready() keep the hooks: let only the optimizer own them."},
    [] {
      judge_worded(destruction(), destruction_ends_everything);
      judge_worded(misuse(), destruction_is_silent);
    }};

const GradedTest kErrors{{.name = "errors_come_before_communication",
                          .points = 1,
                          .hint = "TORCH_CHECK() what the header lists, before the first "
                                  "broadcast: the factory, too, can be called before it, since a "
                                  "shard's values may come later."},
                         [] { judge_worded(misuse(), misuse_is_refused); }};

}  // namespace

}  // namespace ddp::testing
