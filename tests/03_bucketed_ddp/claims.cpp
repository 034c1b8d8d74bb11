#include <algorithm>

#include "bodies.h"
#include "buckets.h"
#include "support/grading.h"
#include "support/settings.h"
#include "support/toy_bodies.h"
#include "support/training_bodies.h"
#include "support/training_claims.h"

// What must be true of all that the ranks did, in every body.

namespace ddp::testing {

namespace {

// All flat tensors together take no more than the gradients' bytes and one bucket.
std::string memory_is_bounded(const Evidence& evidence) {
  constexpr std::int64_t kNumbers = 4096;  // for losses, counts, sizes
  std::int64_t limit = 0;                  // of each rank, which says it first
  const auto describe = [&](const Seen& fact, int rank) -> std::string {
    limit = fact.text == "bytes: limit" ? fact.number : limit;
    return fact.text.starts_with("bytes: ") && fact.number > limit + kNumbers
               ? "rank " + std::to_string(rank) + ": " + fact.text.substr(7) + " " +
                     std::to_string(fact.number) + " bytes are in use, " +
                     std::to_string(fact.number - limit) +
                     " more than flat tensors and all others beside the gradients may take "
                     "together: the gradients' bytes and one bucket"
               : "";
  };
  const std::string above = first_event(evidence, EventKind::kFact, describe);
  return above.empty() ? nothing_grows(evidence) : above;
}

// In evidence without Trainings: something was reduced at all.
std::string something_is_reduced(const Evidence& evidence) {
  const bool reduced = std::ranges::any_of(evidence.of, [](const auto& said) {
    return std::ranges::any_of(said, [](const Seen& seen) { return is_all_reduce(seen); });
  });
  return reduced ? "" : "nothing was reduced";
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .points = 1,
     .hint = "As in stage 01: parameters, frozen ones too, and buffers of every dtype, bit for "
             "bit, in place."},
    [] {
      judge(overlapping(), state_is_rank_0s);
      judge(without_overlap(), state_is_rank_0s);
    }};

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .points = 2,
     .hint = "Copy each gradient into its place in the bucket, by shape and not by memory; reduce; "
             "divide once; hand each place back to its own parameter. A missing one is zero."},
    [] {
      judge(overlapping(), all_of({gradients_are_means, gradients_have_the_same_bits}),
            misused_in_flight);
    }};

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .points = 1,
     .hint = "Between steps a gradient may be set to none, and is then a different tensor from the "
             "one before; or set to zero, and is the same. Both must work."},
    [] {
      judge(small_models(), training_ends_at_the_oracle(plain_models()), misused_in_flight);
      judge(all_models(), training_ends_at_the_oracle({same_order_models()}), misused_in_flight);
      judge(overlapping(), state_is_left_alone);
    }};

const GradedTest kAccumulation{
    {.name = "gradients_accumulate_inside_no_sync",
     .points = 1,
     .hint = "Inside NoSync hooks launch nothing. finish() reduces what each gradient holds, "
             "whether or not the last backward called its hook."},
    [] {
      judge(overlapping(), all_of({every_step_reduces, no_sync_is_silent}));
      judge(without_overlap(), no_sync_is_silent);
    }};

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_bucket",
     .points = 2,
     .hint = "Each finish() outside NoSync leaves every bucket of the plan reduced once: a flat "
             "tensor of exactly its elements, in its own dtype. Nothing else is sent."},
    [] { judge(overlapping(), each_bucket_once, plan_is_wrong); }};

const GradedTest kOneOrder{
    {.name = "buckets_start_in_plan_order",
     .points = 2,
     .hint = "Which bucket is next is one number, the same on all ranks. A bucket that is full "
             "before its turn waits; finish() launches the rest in the same order."},
    [] {
      judge(overlapping(), all_of({in_plan_order, rest_is_launched_before_it_is_awaited}),
            plan_is_wrong);
      judge(branching_models(), training_ends_at_the_oracle({{ToyKind::kRankBranch}}),
            misused_in_flight);
    }};

const GradedTest kNoOverlap{
    {.name = "without_overlap_buckets_are_reduced_after_backward",
     .points = 1,
     .hint = "overlap = false: nothing is launched before finish(), which reduces the buckets of "
             "the same plan in the same order."},
    [] {
      judge(without_overlap(),
            all_of({after_backward_one_by_one, each_bucket_once, in_plan_order, gradients_are_means,
                    gradients_have_the_same_bits, state_is_left_alone, every_step_reduces}),
            plan_is_wrong);
    }};

const GradedTest kInstant{
    {.name = "a_bucket_starts_with_its_last_gradient",
     .points = 3,
     .hint = "The hook of a bucket's last gradient launches the bucket, if it is its turn, and "
             "then all full buckets that have waited for it. finish() is too late for that."},
    [] { judge(overlapping(), with_its_last_gradient, plan_is_wrong); }};

const GradedTest kNoWaits{
    {.name = "nothing_waits_inside_backward",
     .points = 1,
     .hint = "A hook launches and returns. It must not wait for any result, not even to launch the "
             "next bucket or to end the last step; finish() waits for all."},
    [] {
      judge(overlapping(), backward_never_waits);
      judge(joined({small_models(), all_models()}), backward_never_waits);
      judge(misuse(), backward_never_waits);
      judge(named(same_order(), {"three layers, three steps", "310 layers"}), backward_launches);
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_bucket_in_flight",
     .points = 1,
     .hint = "From its launch to its wait() a bucket's flat tensor belongs to the network: write "
             "no gradient into it, divide it before or after, and read nothing from it."},
    [] {
      judge(overlapping(), all_of({buffers_in_flight_are_left_alone, every_step_reduces}));
      judge(without_overlap(), buffers_in_flight_are_left_alone);
      judge(joined({small_models(), all_models()}), buffers_in_flight_are_left_alone);
    }};

const GradedTest kMemory{
    {.name = "buckets_take_the_gradients_bytes_and_one_bucket",
     .points = 1,
     .hint = "One flat tensor for each bucket, allocated once or at its launch; no other copies of "
             "gradients, and nothing that grows from step to step."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      judge(memory(), all_of({memory_is_bounded, something_is_reduced}));
      judge(overlapping(), all_of({nothing_grows, every_step_reduces}));
    }};

const GradedTest kDestruction{
    {.name = "destruction_unhooks",
     .points = 1,
     .hint = "on_gradient_ready() returns a handle that keeps the hook: let only the synchronizer "
             "own it. A backward after its destruction must not be affected."},
    [] {
      judge(destruction(), destruction_ends_everything);
      judge(misuse(), destruction_is_silent);
    }};

const GradedTest kErrors{
    {.name = "errors_name_the_parameter",
     .points = 1,
     .hint = "TORCH_CHECK() what the header lists, before any communication, and say which index "
             "is at fault. In a step: what has changed since the buckets were planned?"},
    [] { judge(misuse(), misuse_is_refused); }};

}  // namespace

}  // namespace ddp::testing
