#include "claims.h"

#include "bodies.h"
#include "support/calls.h"
#include "support/grading.h"
#include "support/settings.h"
#include "support/training_claims.h"

// What must be true of all that the ranks did, in every body.

namespace ddp::testing {

namespace {

std::vector<Body> training() {
  return bodies_of_cases([](const Case& one) { return !accumulates(one) && !clips(one); });
}

// Units of each kind. What a unit's steps are like is nothing to its construction.
std::vector<Body> constructions() {
  return constructions_of_cases([](const Case& one) {
    return one.steps.size() > 1 && one.options.prefetch == 1 && !one.options.keep_last &&
           !accumulates(one) && !clips(one) && is_determined(one);
  });
}

// Of which the header says where each all-gather comes.
std::vector<Body> determined() { return bodies_of_cases(is_determined); }

std::string nothing_grows_in_steps(const Evidence& evidence) {
  return growth_in_steps(evidence, kStepsBetweenCounts);
}

// kValues and kConstruction say of the simplest case what is wrong, and that is no other test's mistake.
Predicate values_too() {
  return only_where(training()[0], values_are_the_unsharded_models,
                    values_are_the_unsharded_models);
}
Predicate where_construction_is_right(const Predicate& holds) {
  return only_where(constructions()[0], shards_are_rank_0s, holds);
}

// Another call's are another test's.
std::string clipping_leaves_surroundings_alone(const Evidence& evidence) {
  const std::string text = surroundings_are_left_alone(evidence);
  return text.find("clip_grad_norm()") == std::string::npos ? "" : text;
}

void judge_memory(const Predicate& holds) {
  if (!settings().device.is_cpu()) {
    GTEST_SKIP() << "memory is counted on the CPU only";
  }
  judge(memory(), holds);
}

const GradedTest kConstruction{
    {.name = "construction_leaves_a_chunk_of_rank_0",
     .points = 1,
     .hint =
         "Flatten a unit, pad it, broadcast it, and keep one chunk: that with your rank's number "
         "in the group."},
    [] { judge(constructions(), shards_are_rank_0s); }};

const GradedTest kValues{
    {.name = "a_step_ends_where_the_unsharded_model_ends",
     .points = 4,
     .hint =
         "A unit's function gets views of one flat leaf, made anew in each forward. What autograd "
         "has saved of them sees whatever memory is under the leaf in backward."},
    [] {
      judge(training(), all_of({values_are_the_unsharded_models, surroundings_are_left_alone}),
            misused_in_flight);
    }};

const GradedTest kCount{
    {.name = "each_use_is_gathered_and_each_gradient_reduced_once",
     .points = 3,
     .hint = "One all-gather for each use in forward, one in backward, one reduce-scatter for each "
             "unit: three times (N-1)/N of the parameters' bytes."},
    [] {
      judge(
          bodies_of_cases([](const Case& one) { return is_determined(one) && !accumulates(one); }),
          all_of({nothing_else_is_launched, each_use_is_gathered, each_gradient_is_reduced}));
    }};

const GradedTest kOrder{
    {.name = "gathers_come_in_the_order_of_use",
     .points = 2,
     .hint =
         "Before a unit is waited for, the next ones are on their way: the list's next in forward, "
         "in backward those that forward used before."},
    [] { judge(determined(), gathers_have_their_moment, each_use_is_gathered); }};

const GradedTest kReduce{
    {.name = "a_reduce_scatter_starts_with_its_gradient",
     .points = 2,
     .hint =
         "on_gradient_ready() of the flat leaf calls you when all uses of the unit have added to "
         "its gradient: let go, then reduce, at once."},
    [] { judge(determined(), reduce_scatters_have_their_moment, no_sync_reduces_nothing); }};

const GradedTest kWhole{
    {.name = "units_are_whole_only_when_they_are_needed",
     .points = 3,
     .hint = "List what is whole when a unit computes: itself, and those that were gathered ahead. "
             "Whatever else has memory should have been let go before."},
    [] {
      judge_memory(all_of(
          {units_are_gathered, units_memory_is_bounded("'s tensors"), one_is_reduced_at_a_time}));
    }};

const GradedTest kHeld{
    {.name = "a_rank_holds_an_nth_between_steps",
     .points = 1,
     .hint =
         "After finish() there are shards and their gradients. Which member, hook or handle keeps "
         "more?"},
    [] {
      judge_memory(
          all_of({units_are_gathered, units_memory_is_bounded("between"), nothing_grows_in_steps}));
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_tensor_in_flight",
     .points = 1,
     .hint =
         "From launch to wait a shard, a flat tensor and a gradient belong to the network: wait "
         "before you use them, and before their memory goes."},
    [] {
      judge(training(), all_of({units_are_gathered, buffers_in_flight_are_left_alone}));
    }};

const GradedTest kAccumulation{
    {.name = "gradients_accumulate_inside_no_sync",
     .points = 1,
     .hint =
         "Inside NoSync a unit's whole gradient stays in the flat leaf. The next backward outside "
         "adds to it and reduces the sum; finish() reduces what is left."},
    [] {
      judge(bodies_of_cases(accumulates),
            all_of({no_sync_reduces_nothing, each_gradient_is_reduced, values_too()}));
    }};

const GradedTest kNorm{
    {.name = "the_norm_is_over_all_shards",
     .points = 1,
     .hint =
         "Add the squares of this rank's shards' gradients; one all-reduce of one float64 number "
         "makes it everybody's."},
    [] {
      judge(bodies_of_cases(clips), all_of({where_construction_is_right(norm_is_that_of_all_units),
                                            values_too(), clipping_leaves_surroundings_alone}));
    }};

const GradedTest kStates{
    {.name = "states_load_into_worlds_of_other_sizes",
     .points = 2,
     .hint = "Joined in the order of ranks, shards are the flat unit and "
             "padding. Cut that off, pad for "
             "the new number of ranks, and take your chunk."},
    [] {
      judge(states(), all_of({where_construction_is_right(states_are_those_saved),
                              whole_parameters_are_gathered_once, surroundings_are_left_alone}));
    }};

const GradedTest kDestruction{
    {.name = "destruction_ends_everything",
     .points = 1,
     .hint =
         "A hook on a unit's output outlives the model with its graph: it has to find out that the "
         "model is gone."},
    [] {
      judge(destruction(), all_of({units_are_gathered, destruction_is_silent, misuse_is_refused,
                                   states_are_those_saved, nothing_grows}));
    }};

const GradedTest kErrors{
    {.name = "errors_come_before_communication",
     .points = 1,
     .hint =
         "TORCH_CHECK() all that the header lists before the first broadcast, and all of a state "
         "before the first shard is written to."},
    [] {
      judge(misuse(), all_of({misuse_is_refused, states_are_those_saved}));
    }};

}  // namespace

}  // namespace ddp::testing
