#include "bodies.h"
#include "launch_moments.h"
#include "support/grading.h"
#include "support/toy_bodies.h"
#include "support/training_bodies.h"
#include "support/training_claims.h"

// What must be true of all that the ranks did, in every body.

namespace ddp::testing {

namespace {

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .points = 1,
     .hint = "As in stage 01: broadcast parameters, frozen ones too, and buffers of every dtype. "
             "Then register the hooks: a broadcast alone gives no points here."},
    [] { judge(training(), state_is_rank_0s); }};

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .points = 2,
     .hint = "After finish() every gradient is the sum over the ranks divided by the world size, "
             "in its own precision and with the same bits on all ranks."},
    [] {
      judge(training(), all_of({gradients_are_means, gradients_have_the_same_bits}),
            misused_in_flight);
    }};

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .points = 2,
     .hint = "One step works, but not several? Between steps gradients are set to zero, or to none "
             "and are then different tensors. Get each parameter's gradient again in every step."},
    [] {
      judge(small_models(), training_ends_at_the_oracle(plain_models()), misused_in_flight);
      judge(all_models(), training_ends_at_the_oracle({same_order_models()}), misused_in_flight);
      judge(training(), state_is_left_alone);
    }};

const GradedTest kAccumulation{
    {.name = "micro_batches_communicate_once",
     .points = 2,
     .hint = "Inside NoSync a hook sends nothing, but records that a reduction is due. The sum is "
             "sent by the hook of a backward outside or by finish(), whichever comes first."},
    [] {
      judge(training(),
            all_of({no_sync_is_silent, owed_gradients_go_in_order, accumulated_sums_are_averaged}));
    }};

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_parameter",
     .points = 2,
     .hint = "A step makes one all-reduce for each gradient, of exactly its bytes: none for frozen "
             "ones, one for a tied weight, none in forward, and nothing else is communicated."},
    [] { judge(training(), one_all_reduce_for_each_gradient); }};

const GradedTest kLaunch{
    {.name = "each_all_reduce_starts_in_its_own_hook",
     .points = 3,
     .hint = "The hook of a parameter launches its all-reduce at once: not before the gradient is "
             "accumulated, not together with the next one, and not in finish()."},
    [] { judge(training(), each_is_launched_when_ready); }};

const GradedTest kNoWait{
    {.name = "nothing_waits_inside_backward",
     .points = 2,
     .hint = "A hook starts communication and returns. Any kind of wait, by Work, by a future or "
             "by polling, blocks backward until the network is done."},
    [] {
      judge(all_bodies(), all_of({backward_never_waits, backward_launches}));
      judge(misuse(), backward_never_waits);
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_gradient_in_flight",
     .points = 1,
     .hint = "From its launch until it has been waited for, a gradient belongs to the network: "
             "neither write it (dividing it) nor read it. finish() waits for every handle."},
    [] {
      judge(all_bodies(), all_of({buffers_in_flight_are_left_alone, every_step_reduces}));
    }};

const GradedTest kDestruction{
    {.name = "destruction_removes_the_hooks",
     .points = 1,
     .hint = "The handle that on_gradient_ready returns removes the hook when it is destroyed. Who "
             "owns your handles, and does anything else keep them, or what they refer to, alive?"},
    [] {
      judge(destruction(), destruction_ends_everything);
      judge(misuse(), destruction_is_silent);
    }};

const GradedTest kGrowth{
    {.name = "a_hundred_steps_do_not_grow",
     .points = 1,
     .hint = "What a step collects (handles, tensors, flags) must be gone when finish() returns, "
             "or the next step would process it again."},
    [] {
      judge(training(), all_of({nothing_grows, every_step_reduces}));
    }};

const GradedTest kErrors{
    {.name = "mistakes_are_errors_and_hang_nobody",
     .points = 1,
     .hint = "Check all arguments before the first broadcast, a gradient before its launch, and in "
             "the hook whether this parameter is still in flight: TORCH_CHECK, with its index."},
    [] { judge(misuse(), misuse_is_refused); }};

}  // namespace

}  // namespace ddp::testing
