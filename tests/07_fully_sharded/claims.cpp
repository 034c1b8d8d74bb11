#include "claims.h"

#include "grader/calls.h"
#include "grader/grading.h"
#include "grader/settings.h"
#include "grader/training_claims.h"
#include "scenarios.h"

// What must be true of all that the ranks did, in every scenario.

namespace ddp::testing {

namespace {

std::vector<Scenario> training() {
  return scenarios_of_cases([](const Case& one) { return !accumulates(one) && !clips(one); });
}

// Units of each kind. What a unit's steps are like is nothing to its construction.
std::vector<Scenario> constructions() {
  return constructions_of_cases([](const Case& one) {
    return one.steps.size() > 1 && one.options.prefetch == 1 && !one.options.keep_last &&
           !accumulates(one) && !clips(one) && is_determined(one);
  });
}

// Of which the header says where each all-gather comes.
std::vector<Scenario> determined() { return scenarios_of_cases(is_determined); }

Finding nothing_grows_in_steps(const Evidence& evidence) {
  return growth_in_steps(evidence, kStepsBetweenCounts);
}

// kValues says of the simplest case what is wrong, and that is no other test's mistake.
Predicate values_too() {
  return only_where(training()[0], values_are_the_unsharded_models,
                    values_are_the_unsharded_models);
}

// Another call's are another test's.
Finding clipping_leaves_surroundings_alone(const Evidence& evidence) {
  Finding found = surroundings_are_left_alone(evidence);
  return found.text.find("clip_grad_norm()") == std::string::npos ? Finding() : found;
}

void judge_memory(const Predicate& violation) {
  if (!settings().device.is_cpu()) {
    GTEST_SKIP() << "memory is counted on the CPU only";
  }
  judge(memory(), violation);
}

const GradedTest kConstruction{
    {.name = "construction_leaves_a_chunk_of_rank_0",
     .title = "Construction leaves a chunk of rank 0's state",
     .points = 1,
     .hint =
         "Flatten a unit, pad it, broadcast it, and keep one chunk: that with your rank's number "
         "in the group.",
     .more = "For a unit of 850 elements and three ranks: how long is the flat tensor, how long a "
             "shard, which elements has rank 2? FlatLayout::flatten() makes the first, chunk() "
             "the second. Is it a copy, or a view that keeps the whole unit's memory? And is it a "
             "leaf that requires a gradient, made after the copy?"},
    [] { judge(constructions(), shards_are_rank_0s); }};

const GradedTest kValues{
    {.name = "a_step_ends_where_the_unsharded_model_ends",
     .title = "A step ends where the unsharded model ends",
     .points = 4,
     .hint =
         "A unit's function gets views of one flat leaf, made anew in each forward. What autograd "
         "has saved of them sees whatever memory is under the leaf in backward.",
     .more = "Begin with one unit, prefetch 0, one step, and compare: the output, the flat "
             "gradient before it is reduced, the shard's gradient, the shard. The first that is "
             "wrong tells. A crash: whose memory was empty when it was read? Saved variable "
             "modified: what did you fill through? Wrong only where a unit is used twice, or with "
             "checkpoints: when is its gradient complete, and is its memory there at each of its "
             "backwards? Wrong by a factor: who divides?"},
    [] {
      judge(training(), all_of({values_are_the_unsharded_models, surroundings_are_left_alone}),
            misused_in_flight);
    }};

const GradedTest kCount{
    {.name = "each_use_is_gathered_and_each_gradient_reduced_once",
     .title = "Each use is gathered, each gradient reduced once",
     .points = 3,
     .hint = "One all-gather for each use in forward, one in backward, one reduce-scatter for each "
             "unit: three times (N-1)/N of the parameters' bytes.",
     .more = "Write down for one step what is launched, in order, and compare with the "
             "header's rules by hand. Too many gathers: is a unit gathered that is whole "
             "already, because it was gathered ahead or kept, or for a use whose backward is "
             "over? Too few: is one still whole that should have been let go when its function"
             " returned? Another size: is it the whole padded unit?"},
    [] {
      judge(scenarios_of_cases(
                [](const Case& one) { return is_determined(one) && !accumulates(one); }),
            all_of({nothing_else_is_launched, each_use_is_gathered, each_gradient_is_reduced}));
    }};

const GradedTest kOrder{
    {.name = "gathers_come_in_the_order_of_use",
     .title = "All-gathers come in the order of use",
     .points = 2,
     .hint =
         "Before a unit is waited for, the next ones are on their way: the list's next in forward, "
         "in backward those that forward used before.",
     .more = "In forward the next units are those after this one in the list. In backward they "
             "are the uses before this one: keep a list of uses, and give each hook its place in "
             "it: a unit that was not used is not gathered. A prefetch may be as large as an int "
             "can be: what do you add to it? The gathers ahead start before you wait for this "
             "unit, not after."},
    [] { judge(determined(), gathers_have_their_moment, each_use_is_gathered); }};

const GradedTest kReduce{
    {.name = "a_reduce_scatter_starts_with_its_gradient",
     .title = "A reduce-scatter starts with its gradient",
     .points = 2,
     .hint =
         "on_gradient_ready() of the flat leaf calls you when all uses of the unit have added to "
         "its gradient: let go, then reduce, at once.",
     .more = "Two hooks belong to a unit: one on its output, before its backward, and "
             "on_gradient_ready() of the flat leaf, after it. Which of them reduces? If something "
             "else was launched first: what does the next unit's hook do before yours has run?"},
    [] { judge(determined(), reduce_scatters_have_their_moment, no_sync_reduces_nothing); }};

const GradedTest kWhole{
    {.name = "units_are_whole_only_when_they_are_needed",
     .title = "Units are whole only while they are needed",
     .points = 3,
     .hint = "List what is whole when a unit computes: itself, and those that were gathered ahead. "
             "Whatever else has memory should have been let go before.",
     .more = "Print, at each launch of a gather, which units have memory. For a prefetch of 1 "
             "that are two at most. Usual suspects: units that were gathered ahead and skipped, a "
             "unit whose backward is over, the unit of a function that threw, gradients whose "
             "reduce-scatter nobody has waited for, units that construction has flattened before "
             "the first one is cut, narrow() where one operator could make all views "
             "(FlatLayout::views_of)."},
    [] {
      judge_memory(all_of(
          {units_are_gathered, units_memory_is_bounded("'s tensors"), one_is_reduced_at_a_time}));
    }};

const GradedTest kHeld{
    {.name = "a_rank_holds_an_nth_between_steps",
     .title = "Between steps a rank holds one Nth",
     .points = 1,
     .hint =
         "After finish() there are shards and their gradients. Which member, hook or handle keeps "
         "more?",
     .more = "List the members that hold tensors, and what each holds when finish() has "
             "returned: flat leaves without memory, shards, nothing in flight, no gradient of "
             "a flat leaf, no mean that was added already. Do the given units still hold their"
             " whole parameters? And after a function that threw, or evaluation without "
             "finish()? If something grows: a list of handles, or of uses?"},
    [] {
      judge_memory(
          all_of({units_are_gathered, units_memory_is_bounded("between"), nothing_grows_in_steps}));
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_tensor_in_flight",
     .title = "Nothing touches a tensor in flight",
     .points = 1,
     .hint =
         "From launch to wait a shard, a flat tensor and a gradient belong to the network: wait "
         "before you use them, and before their memory goes.",
     .more = "Three kinds of tensors are in flight: a flat tensor and the shard it is gathered "
             "from; a whole gradient and the mean. For each: which line launches, which waits, "
             "and what can happen between? Letting memory go is touching it, too."},
    [] {
      judge(training(), all_of({units_are_gathered, buffers_in_flight_are_left_alone}));
    }};

const GradedTest kAccumulation{
    {.name = "gradients_accumulate_inside_no_sync",
     .title = "Gradients accumulate inside NoSync",
     .points = 1,
     .hint =
         "Inside NoSync a unit's whole gradient stays in the flat leaf. The next backward outside "
         "adds to it and reduces the sum; finish() reduces what is left.",
     .more = "Inside the scope the hook of the flat leaf lets the unit go and does nothing else: "
             "the whole gradient stays in the leaf, and autograd adds the next one to it. Where "
             "do you ask synchronizes(): in forward, or when the gradient is complete? Which "
             "units have one when finish() comes, and no backward outside the scope has reduced "
             "it?"},
    [] {
      judge(scenarios_of_cases(accumulates),
            all_of({no_sync_reduces_nothing, each_gradient_is_reduced, values_too()}));
    }};

const GradedTest kNorm{
    {.name = "the_norm_is_over_all_shards",
     .title = "The norm is over all shards",
     .points = 1,
     .hint =
         "Add the squares of this rank's shards' gradients; one all-reduce of one float64 number "
         "makes it everybody's.",
     .more = "The root of a sum of squares: which part of it is yours, which operation adds the "
             "others', and where does the root come? A unit that nobody has used has no gradient. "
             "Does the padding add anything? Which dtype do you name, and which do you change for "
             "everybody?"},
    [] {
      judge(scenarios_of_cases(clips),
            all_of({norm_is_that_of_all_units, values_too(), clipping_leaves_surroundings_alone}));
    }};

const GradedTest kStates{
    {.name = "states_load_into_worlds_of_other_sizes",
     .title = "States load into worlds of other sizes",
     .points = 2,
     .hint = "Joined in the order of ranks, shards are the flat unit and "
             "padding. Cut that off, pad for "
             "the new number of ranks, and take your chunk.",
     .more = "Join the shards in the order of ranks: that is the flat unit and the old world's "
             "padding. The new world has another padding, and other chunks. Write into the shards "
             "that are there, since optimizers know them. Nothing here needs the network, and "
             "nothing may compute with the values: a NaN has bits, too. Autograd may be off when "
             "you are called: a guard leaves it so."},
    [] {
      judge(states(), all_of({states_are_those_saved, whole_parameters_are_gathered_once,
                              surroundings_are_left_alone}));
    }};

const GradedTest kDestruction{
    {.name = "destruction_ends_everything",
     .title = "Destruction ends everything",
     .points = 1,
     .hint =
         "A hook on a unit's output outlives the model with its graph: it has to find out that the "
         "model is gone.",
     .more = "A graph can outlive the model, and with it the hook on an output, which refers to a "
             "model that is gone. A weak_ptr to something that dies with the model tells. The "
             "hooks of on_gradient_ready() go with their handles."},
    [] {
      judge(destruction(), all_of({units_are_gathered, destruction_is_silent, misuse_is_refused,
                                   states_are_those_saved, nothing_grows}));
    }};

const GradedTest kErrors{
    {.name = "errors_come_before_communication",
     .title = "Errors come before communication",
     .points = 1,
     .hint =
         "TORCH_CHECK() all that the header lists before the first broadcast, and all of a state "
         "before the first shard is written to.",
     .more = "For each error of the header: which check finds it, and has any unit been broadcast "
             "by then? All units are checked before the first is sent. In load() and "
             "load_whole(): has a shard been written to before the last unit has been looked at?"},
    [] {
      judge(misuse(), all_of({misuse_is_refused, states_are_those_saved}));
    }};

}  // namespace

}  // namespace ddp::testing
