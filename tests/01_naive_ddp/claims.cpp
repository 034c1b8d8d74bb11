#include <algorithm>

#include "grader/grading.h"
#include "grader/toy_scenarios.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"
#include "grader/training_scenarios.h"
#include "scenarios.h"

// What must be true of all that the ranks did, in every scenario.

namespace ddp::testing {

namespace {

// All communication of a step happens in finish().
Finding only_finish_communicates(const Evidence& evidence) {
  return first_event(evidence, EventKind::kLaunch, [](const Seen& launch, int rank) {
    const Phase phase = launch.place.phase;
    return phase == Phase::kForward || phase == Phase::kBackward
               ? where(launch, rank) + ": " + describe_operation(launch) +
                     " was launched in forward or backward; this stage communicates in finish() "
                     "only"
               : "";
  });
}

using Payloads = std::vector<Payload>;

Payloads reduced_in(const TrainingStep& step) {
  Payloads payloads;
  for (const Seen* launch : step.launches()) {
    if (launch->place.phase == Phase::kFinish && is_all_reduce(*launch) && launch->elements > 0) {
      payloads.push_back({launch->elements, launch->dtype});
    }
  }
  return payloads;
}

// "4 float32, 12 float64".
std::string in_words(const Payloads& payloads) {
  return payloads.empty()
             ? "none"
             : enumerated(
                   payloads, [](const Payload& each) { return to_string(each); }, 12, ", ...");
}

// The first launch that is none of the `due` all-reduces of finish(); null if there is none.
const Seen* too_many(const TrainingStep& step, Payloads due) {
  for (const Seen* launch : step.launches()) {
    const bool reduces = launch->place.phase == Phase::kFinish && is_all_reduce(*launch);
    const bool is_due = take(due, {launch->elements, launch->dtype});
    if (launch->bytes > 0 && !(reduces && is_due)) {
      return launch;
    }
  }
  return nullptr;
}

// `all_reduces` for each step and rank.
Finding each_step_makes(const Evidence& evidence,
                        const std::function<Payloads(const TrainingOfRank&)>& all_reduces,
                        const std::string& what) {
  return first_on_ranks(
      evidence,
      [&](const TrainingOfRank& training, const TrainingStep& step, std::size_t ranks) -> Finding {
        const bool others = std::ranges::any_of(step.launches(), [](const Seen* launch) {
          return !is_all_reduce(*launch) && launch->bytes > 0;
        });
        Payloads found = reduced_in(step);
        Payloads expected = all_reduces(training);
        std::erase_if(expected, [](const Payload& payload) { return payload.elements == 0; });
        std::ranges::sort(found);
        std::ranges::sort(expected);
        const bool alone = ranks == 1 && found.empty();
        if (!has_ended(step) || alone || (!others && found == expected)) {
          return "";
        }
        const Seen* const extra = too_many(step, expected);
        return Finding("finish() should launch " + what +
                       ", and nothing else. Due: " + in_words(expected) + "; launched:" +
                       list_of(step.launches(),
                               [](const Seen& launch) {
                                 return ", " + to_string({launch.elements, launch.dtype});
                               }))
            .at(extra != nullptr || step.launches().empty() ? extra : step.launches().back(),
                extra != nullptr ? "extra operation" : "missing operation");
      });
}

Payloads payloads_of(const TrainingOfRank& training) {
  Payloads payloads;
  for (const std::int64_t index : trainable(training)) {
    if (const auto found = training[kParameter].find(index); found != training[kParameter].end()) {
      payloads.push_back({found->second.numel(), found->second.scalar_type()});
    }
  }
  return payloads;
}

Finding order_is_fixed(const Evidence& evidence) {
  return first_on_ranks(
      evidence,
      [](const TrainingOfRank& training, const TrainingStep& step, std::size_t) -> std::string {
        const TrainingStep& first = training.steps.begin()->second;
        return has_ended(step) && has_ended(first) && reduced_in(step) != reduced_in(first)
                   ? "finish() launched" + list_of(step.launches()) +
                         "\n  but in the first step, in another order:" + list_of(first.launches())
                   : "";
      });
}

Finding one_for_each(const Evidence& evidence) {
  return each_step_makes(
      evidence, payloads_of,
      "one all-reduce for each trainable parameter, of exactly its elements in its dtype");
}

Finding one_for_all(const Evidence& evidence) {
  return each_step_makes(
      evidence,
      [](const TrainingOfRank& training) {
        Payload all;
        for (const Payload& each : payloads_of(training)) {
          all = {all.elements + each.elements, each.dtype};
        }
        return Payloads{all};
      },
      "one all-reduce of the elements of all trainable parameters, in their dtype");
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .title = "Construction broadcasts rank 0's state",
     .points = 2,
     .hint = "Broadcast everything the model consists of: parameters, frozen ones too, and "
             "buffers of every dtype. Autograd must not see it: work on parameter.detach().",
     .more =
         "The failure names the tensor by its list and index: is it frozen, an integer "
         "counter, or not contiguous? Read \"in its own storage\" in naive_ddp.h again. If an "
         "error of autograd comes instead, ask which tensor you handed to broadcast(), and "
         "whether autograd takes it for a leaf. And who sees the values that arrive in a copy?"},
    [] { judge(all_training(), state_is_rank_0s); }};

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .title = "Gradients are the mean over all ranks",
     .points = 2,
     .hint = "After finish() every trainable parameter's gradient is the sum over the ranks "
             "divided by the world size, in the parameter's own precision.",
     .more = "Compare the two numbers of the failure. Wrong by a factor of p: count the "
             "divisions. Wrong on one rank only: does every rank divide? Exactly the rank's own "
             "value: where did the result go, if the gradient was not contiguous? The last digits "
             "only: in which dtype did you add up? The miniature of the handout has a case to try "
             "on paper."},
    [] { judge(training(Form::kPerParameter), gradients_are_means, misused_in_flight); }};

const GradedTest kBitwise{
    {.name = "gradients_are_bitwise_equal_across_ranks",
     .title = "Gradients have the same bits on all ranks",
     .points = 1,
     .hint = "All ranks must end with the very same bits, or their parameters drift apart. Let "
             "every rank do the same arithmetic on the same reduced values.",
     .more = "The contract's formula leaves you the choice where to divide, but not to do it in "
             "two ways: is there an `if` on the rank after the all-reduce? x / p and x * (1 / p) "
             "are not the same number. What else do you do to a gradient that depends on who you "
             "are?"},
    [] {
      judge(all_training(), all_of({every_step_reduces, gradients_have_the_same_bits}));
    }};

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .title = "Five SGD steps end where one process ends",
     .points = 2,
     .hint = "One step works, but not several? Get each parameter's gradient again in every "
             "finish(): between steps it may be set to none, and is then a different tensor.",
     .more = "See in which step it goes wrong first, and what the caller did to gradients before "
             "it: set to zero, set to none, replaced. Then read \"Gradients\" in "
             "gradient_synchronizer.h. Which tensors does your object keep from construction or "
             "from the last step? If a buffer is named: what may a synchronizer do with buffers "
             "after construction?"},
    [] {
      judge(small_models(), training_ends_at_the_oracle(plain_models()), misused_in_flight);
      judge(all_models(), training_ends_at_the_oracle({all_toy_models()}), misused_in_flight);
      judge(all_training(), state_is_left_alone);
    }};

const GradedTest kMissing{
    {.name = "missing_gradients_count_as_zero",
     .title = "A missing gradient counts as zero",
     .points = 2,
     .hint = "A gradient that is undefined here may exist on another rank, which waits for you: "
             "take part with zeros, and keep the mean.",
     .more = "Take two ranks and one parameter that only rank 0 uses, and write down each rank's "
             "calls. Then ask four things. Does rank 1 call as often as rank 0? What shape and "
             "dtype has what it sends? What is rank 1's gradient afterwards, by the contract? And "
             "do two missing gradients share memory?"},
    [] {
      judge(joined({rank_dependent(Form::kPerParameter),
                    charged_to(training(Form::kPerParameter), "missing_gradients_count_as_zero")}),
            gradients_are_means, misused_in_flight);
    }};

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_parameter",
     .title = "Each parameter has one all-reduce per step",
     .points = 2,
     .hint = "finish() makes one all-reduce for each trainable parameter, of exactly its bytes: "
             "none for frozen ones, one for a tied weight, none in forward, backward or NoSync.",
     .more = "The failure lists what was sent, with bytes: compare with the list of parameters. "
             "Too many: is a tensor listed twice, or frozen? Too few: is one skipped because of "
             "what this rank has? Other bytes: was something converted, split or put together? "
             "The wrong moment: who calls finish(), and what does it do inside NoSync?"},
    [] {
      judge(joined({training(Form::kPerParameter), rank_dependent(Form::kPerParameter)}),
            all_of({only_finish_communicates, no_sync_is_silent, one_for_each, order_is_fixed}));
    }};

const GradedTest kFlat{
    {.name = "flat_form_is_one_all_reduce",
     .title = "The flat form is one all-reduce",
     .points = 1,
     .hint = "make_flat_ddp: put all gradients one after another into one tensor, zeros for "
             "missing ones, reduce it once, and copy every piece back to its gradient.",
     .more = "Draw the flat tensor for three parameters of 4, 6 and 2 elements, the second "
             "without a gradient: which places does each have, going in and coming out? In which "
             "order do you go through the list on the way in, and on the way back? A gradient "
             "that is transposed has the shape you expect, but not the order in memory."},
    [] {
      judge(
          joined({training(Form::kFlat), rank_dependent(Form::kFlat)}),
          all_of({only_finish_communicates, no_sync_is_silent, one_for_all, gradients_are_means}));
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_buffer_in_flight",
     .title = "Nothing touches a buffer in flight",
     .points = 1,
     .hint = "Between the launch of an all-reduce and its wait() the buffer belongs to the "
             "network: neither write it (dividing it) nor read it (a norm for a log).",
     .more = "The failure names the operation: find where you launch it, then where you wait for "
             "it, and read every line between them. all_reduce() returns when the result is "
             "there; all_reduce_async() does not. Is there a handle that nobody waits for, or one "
             "that is thrown away?"},
    [] {
      judge(all_training(), all_of({buffers_in_flight_are_left_alone, every_step_reduces}));
    }};

const GradedTest kErrors{
    {.name = "mistakes_are_errors_and_hang_nobody",
     .title = "Wrong arguments are errors, and no rank hangs",
     .points = 1,
     .hint = "Check all arguments before the first broadcast, and all gradients before the first "
             "all-reduce: TORCH_CHECK, with the index in the caller's list.",
     .more = "Go through the paragraph on errors in naive_ddp.h sentence by sentence, and put a "
             "finger on your line for each. Which index is it, in the caller's list or in one of "
             "yours without doubles? A sparse gradient in the middle of the list: what have you "
             "sent by the time you notice it?"},
    [] {
      judge(misuse(), misuse_is_refused);
      judge(destruction(), destruction_ends_everything);
      judge(all_training(), nothing_grows);
    }};

}  // namespace

}  // namespace ddp::testing
