#include <algorithm>
#include <map>

#include "buckets.h"
#include "grader/grading.h"
#include "grader/settings.h"
#include "grader/toy_scenarios.h"
#include "grader/training_claims.h"
#include "grader/training_scenarios.h"
#include "scenarios.h"

// What must be true of all that the ranks did, in every scenario.

namespace ddp::testing {

namespace {

// All flat tensors together take no more than the gradients' bytes and one bucket.
Finding memory_is_bounded(const Evidence& evidence) {
  constexpr std::int64_t kNumbers = 4096;  // for losses, counts, sizes
  std::map<int, std::int64_t> limits;      // by rank, which says it first
  const auto describe = [&](const Seen& fact, int rank) -> Finding {
    if (fact.text == "bytes: limit") {
      require_once(limits.emplace(rank, fact.number).second, fact.text);
    }
    const std::int64_t limit = limits[rank];
    return fact.text.starts_with("bytes: ") && fact.number > limit + kNumbers
               ? "rank " + std::to_string(rank) + ": " + fact.text.substr(7) + " " +
                     std::to_string(fact.number) + " bytes are in use, " +
                     std::to_string(fact.number - limit) +
                     " more than flat tensors and all others beside the gradients may take "
                     "together: the gradients' bytes and one bucket"
               : "";
  };
  const Finding above = first_event(evidence, EventKind::kFact, describe);
  return above.empty() ? nothing_grows(evidence) : above;
}

// In evidence without Trainings: something was reduced at all.
Finding something_is_reduced(const Evidence& evidence) {
  const bool reduced = std::ranges::any_of(evidence.of, [](const auto& said) {
    return std::ranges::any_of(said, [](const Seen& seen) { return is_all_reduce(seen); });
  });
  return reduced ? "" : "nothing was reduced";
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .title = "Construction broadcasts rank 0's state",
     .points = 1,
     .hint = "As in stage 01: parameters, frozen ones too, and buffers of every dtype, bit for "
             "bit, in place.",
     .more = "The same check as in stage 01, on the same kinds of tensors; the failure names the "
             "index. Does making buckets come before the broadcast, and does it change a "
             "parameter? With overlap = false nothing is hooked, and the broadcast is due all the "
             "same."},
    [] {
      judge(overlapping(), state_is_rank_0s);
      judge(without_overlap(), state_is_rank_0s);
    }};

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .title = "Gradients are the mean over all ranks",
     .points = 2,
     .hint = "Copy each gradient into its place in the bucket, by shape and not by memory; reduce; "
             "divide once; hand each place back to its own parameter. A missing one is zero.",
     .more = "Look whose value it is. Another parameter's: offsets. Its own, transposed: you "
             "copied by memory instead of by shape. Half or a p-th too small: one division too "
             "many, perhaps because a gradient that is already a view of the bucket was divided "
             "in place twice. Last step's: what is in a place that no hook has filled in this "
             "step?"},
    [] {
      judge(overlapping(), all_of({gradients_are_means, gradients_have_the_same_bits}),
            misused_in_flight);
    }};

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .title = "Five SGD steps end where one process ends",
     .points = 1,
     .hint = "Between steps a gradient may be set to none, and is then a different tensor from the "
             "one before; or set to zero, and is the same. Both must work.",
     .more = "After finish() a gradient is yours or a view of a bucket. Go through the four "
             "things that the caller may do with it before the next backward (zero, none, "
             "replace, keep), and say for each whether your place in the bucket and "
             "parameter.grad() are still the same memory. Which line of the hook relies on it?"},
    [] {
      judge(small_models(), training_ends_at_the_oracle(plain_models()), misused_in_flight);
      judge(all_models(), training_ends_at_the_oracle({same_order_models()}), misused_in_flight);
      judge(overlapping(), state_is_left_alone);
    }};

const GradedTest kAccumulation{
    {.name = "gradients_accumulate_inside_no_sync",
     .title = "Gradients accumulate inside NoSync",
     .points = 1,
     .hint = "Inside NoSync hooks launch nothing. finish() reduces what each gradient holds, "
             "whether or not the last backward called its hook.",
     .more = "Two micro-batches: the first, inside NoSync, reaches parameters 0 and 1, the "
             "second, outside, only 0. What does your bucket hold for 1 when finish() comes, and "
             "from where could it get it? A hook tells you that a gradient has come, not that "
             "there is none."},
    [] {
      judge(overlapping(), all_of({every_step_reduces, no_sync_is_silent}));
      judge(without_overlap(), no_sync_is_silent);
    }};

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_bucket",
     .title = "Each bucket has one all-reduce",
     .points = 2,
     .hint = "Each finish() outside NoSync leaves every bucket of the plan reduced once: a flat "
             "tensor of exactly its elements, in its own dtype. Nothing else is sent.",
     .more = "Compare the listed bytes with the plan. One too few: a bucket of which this rank "
             "has no gradient at all is still due. One too many: was it launched by a hook, and "
             "again by finish()? Other bytes: is the flat tensor padded, or of the cap's size? "
             "After NoSync: what did the hooks count inside?"},
    [] { judge(overlapping(), each_bucket_once, plan_is_wrong); }};

const GradedTest kOneOrder{
    {.name = "buckets_start_in_plan_order",
     .title = "Buckets start in the plan's order",
     .points = 2,
     .hint = "Which bucket is next is one number, the same on all ranks. A bucket that is full "
             "before its turn waits; finish() launches the rest in the same order.",
     .more = "Do \"One order for all ranks\" of the handout with three buckets, of which the last "
             "is full first. Which number says whose turn it is? Who looks at the third bucket "
             "again once the second has gone, and does it look once, or for as long as there is "
             "something to launch?"},
    [] {
      judge(overlapping(), all_of({in_plan_order, rest_is_launched_before_it_is_awaited}),
            plan_is_wrong);
      judge(branching_models(), training_ends_at_the_oracle({{ToyKind::kRankBranch}}),
            misused_in_flight);
    }};

const GradedTest kNoOverlap{
    {.name = "without_overlap_buckets_are_reduced_after_backward",
     .title = "Without overlap, buckets are reduced after backward",
     .points = 1,
     .hint = "overlap = false: nothing is launched before finish(), which reduces the buckets of "
             "the same plan in the same order.",
     .more = "With overlap = false, do you need hooks at all? Then everything is missing when "
             "finish() comes. Blocking means: the next bucket is launched when the one before it "
             "has been waited for."},
    [] {
      judge(without_overlap(),
            all_of({after_backward_one_by_one, each_bucket_once, in_plan_order, gradients_are_means,
                    gradients_have_the_same_bits, state_is_left_alone, every_step_reduces}),
            plan_is_wrong);
    }};

const GradedTest kInstant{
    {.name = "a_bucket_starts_with_its_last_gradient",
     .title = "A bucket starts with its last gradient",
     .points = 3,
     .hint = "The hook of a bucket's last gradient launches the bucket, if it is its turn, and "
             "then all full buckets that have waited for it. finish() is too late for that.",
     .more = "The failure says after which gradient the bucket was launched. One gradient late: "
             "is the bucket counted before or after you copy, and compared with what? Only in "
             "finish(): what should have reset the counts at the end of the last step? Full early "
             "and launched one hook late: see buckets_start_in_plan_order."},
    [] { judge(overlapping(), with_its_last_gradient, plan_is_wrong); }};

const GradedTest kNoWaits{
    {.name = "nothing_waits_inside_backward",
     .title = "Nothing waits inside backward",
     .points = 1,
     .hint = "A hook launches and returns. It must not wait for any result, not even to launch the "
             "next bucket or to end the last step; finish() waits for all.",
     .more = "Does a hook reuse a bucket whose all-reduce of the last step may still be going on? "
             "It cannot be, if finish() has waited; so a wait in the hook is never needed. Look "
             "for the blocking all_reduce(), and for anything that asks for a result."},
    [] {
      judge(overlapping(), backward_never_waits);
      judge(joined({small_models(), all_models()}), backward_never_waits);
      judge(misuse(), backward_never_waits);
      judge(named(same_order(), {"three layers, three steps", "310 layers"}), backward_launches);
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_bucket_in_flight",
     .title = "Nothing touches a bucket in flight",
     .points = 1,
     .hint = "From its launch to its wait() a bucket's flat tensor belongs to the network: write "
             "no gradient into it, divide it before or after, and read nothing from it.",
     .more = "Once a bucket has gone, which of your lines can still write into its memory: a late "
             "copy, a division, a zero_() for the next step, a second backward into a gradient "
             "that is a view? Which handle does finish() wait for, and what does it read before?"},
    [] {
      judge(overlapping(), all_of({buffers_in_flight_are_left_alone, every_step_reduces}));
      judge(without_overlap(), buffers_in_flight_are_left_alone);
      judge(joined({small_models(), all_models()}), buffers_in_flight_are_left_alone);
    }};

const GradedTest kMemory{
    {.name = "buckets_take_the_gradients_bytes_and_one_bucket",
     .title = "Memory is the gradients' bytes and one bucket",
     .points = 1,
     .hint = "One flat tensor for each bucket, allocated once or at its launch; no other copies of "
             "gradients, and nothing that grows from step to step.",
     .more = "Add up by hand for one step: flat tensors, copies of gradients on their way, lists "
             "of pieces for at::cat. The header's limit is in its paragraph on memory. What is "
             "allocated in each step, and who frees it? Do you keep the flat tensor of the last "
             "step while you make the next?"},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      judge(memory(), all_of({memory_is_bounded, something_is_reduced}));
      judge(overlapping(), all_of({nothing_grows, every_step_reduces}));
    }};

const GradedTest kDestruction{
    {.name = "destruction_unhooks",
     .title = "Destruction removes the hooks",
     .points = 1,
     .hint = "on_gradient_ready() returns a handle that keeps the hook: let only the synchronizer "
             "own it. A backward after its destruction must not be affected.",
     .more = "As in stage 02, draw who keeps whom alive. A function that captures a shared_ptr to "
             "the synchronizer or to its buckets is the usual circle. A new synchronizer on the "
             "same parameters shows whether the old one is gone."},
    [] {
      judge(destruction(), destruction_ends_everything);
      judge(misuse(), destruction_is_silent);
    }};

const GradedTest kErrors{
    {.name = "errors_name_the_parameter",
     .title = "Errors name the parameter",
     .points = 1,
     .hint = "TORCH_CHECK() what the header lists, before any communication, and say which index "
             "is at fault. In a step: what has changed since the buckets were planned?",
     .more = "For each error ask three questions: which line notices it, has this rank sent "
             "anything by then, and is the index one in the caller's `parameters` (not in the "
             "bucket, not in the reversed list, not without doubles)? A model that was moved with "
             "to(dtype) keeps its parameters as tensors: what do you compare with what?"},
    [] { judge(misuse(), misuse_is_refused); }};

}  // namespace

}  // namespace ddp::testing
