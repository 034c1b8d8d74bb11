#include <algorithm>
#include <set>

#include "grader/grading.h"
#include "grader/toy_scenarios.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"
#include "grader/training_scenarios.h"
#include "scenarios.h"

// What must be true of all that the ranks did, in every scenario.

namespace ddp::testing {

namespace {

bool in_backward(const Seen& seen) {
  return seen.place.phase == Phase::kBackward && !seen.place.no_sync;
}

// What was happening when an operation was launched.
std::string moment(const Seen& launch) {
  if (launch.place.phase == Phase::kFinish) {
    return "in finish()";
  }
  return launch.place.ready < 0 ? "before any gradient was ready"
                                : "when the gradient of layer " +
                                      std::to_string(launch.place.ready) + " was the latest";
}

std::string story(const Events& launches) {
  return list_of(launches, [](const Seen& launch) { return " was launched " + moment(launch); });
}

Finding wrong_moment(const TrainingOfRank& training, const TrainingStep& step) {
  for (const Seen* ready : ready_in(step)) {
    if (!in_backward(*ready)) {
      continue;
    }
    Events own = step.launches();
    std::erase_if(own, [&](const Seen* launch) {
      return !in_backward(*launch) || launch->place.ready != ready->index;
    });
    const at::Tensor& parameter = training[kParameter].at(ready->index);
    if (own.empty() && parameter.numel() == 0) {
      continue;
    }
    if (own.size() != 1 || !is_all_reduce(*own[0]) || own[0]->elements != parameter.numel()) {
      const std::string instead =
          own.empty() ? "nothing was launched"
                      : std::to_string(own.size()) +
                            (own.size() == 1 ? " operation was" : " operations were") +
                            " launched:" + list_of(own);
      return Finding("the hook of layer " + std::to_string(ready->index) + " (" +
                     std::to_string(parameter.nbytes()) +
                     " bytes) should launch exactly that gradient's all-reduce before backward "
                     "goes on; " +
                     instead + "\n  in this step:" + story(step.launches()))
          .at(own.empty() ? ready : own.back(), own.empty()      ? "missing launch"
                                                : own.size() > 1 ? "extra operation"
                                                                 : "");
    }
    const Seen* goes_on = step.last(kGoesOn);
    const bool last = goes_on != nullptr && ready->order < goes_on->order;
    if (last && own[0]->order > goes_on->order) {
      return Finding(describe_operation(*own[0]) +
                     " was launched when backward had already gone on, and not in the hook of its "
                     "gradient")
          .at(own[0], "launched too late");
    }
  }
  return "";
}

// The layers whose gradients backward computed inside NoSync only.
std::set<std::int64_t> owed_in(const TrainingStep& step) {
  std::set<std::int64_t> layers;
  for (const Seen* ready : ready_in(step)) {
    layers.insert(ready->index);
  }
  for (const Seen* ready : ready_in(step)) {
    if (!ready->place.no_sync) {
      layers.erase(ready->index);
    }
  }
  return layers;
}

using Elements = std::vector<std::int64_t>;  // of tensors, by which they are told apart

// Of `layers`, each at its first place in `listed`; what has none need not be sent.
Elements in_order_of(const std::vector<std::int64_t>& listed, std::set<std::int64_t> layers,
                     const TrainingOfRank& training) {
  Elements elements;
  for (const std::int64_t layer : listed) {
    if (layers.erase(layer) > 0 && training[kParameter].at(layer).numel() > 0) {
      elements.push_back(training[kParameter].at(layer).numel());
    }
  }
  return elements;
}

// Whether `some` is `all` with gaps.
bool is_within(const Elements& some, const Elements& all) {
  auto place = all.begin();
  for (const std::int64_t elements : some) {
    place = std::find(place, all.end(), elements);
    if (place == all.end()) {
      return false;
    }
    ++place;
  }
  return true;
}

// Outside NoSync, exactly a gradient's own all-reduce is launched between the moment that it is
// ready and the next one's.
Finding each_is_launched_when_ready(const Evidence& evidence) {
  return first_on_ranks(
      evidence,
      [](const TrainingOfRank& training, const TrainingStep& step, std::size_t ranks) -> Finding {
        // A backward that failed, or a single rank, which need not communicate.
        const bool exempt = !has_ended(step) || (ranks == 1 && step.launches().empty());
        return exempt ? "" : wrong_moment(training, step);
      });
}

// Gradients that were computed inside NoSync only are launched by finish(), in the order of
// `parameters`.
Finding owed_gradients_go_in_order(const Evidence& evidence) {
  return first_on_ranks(
      evidence,
      [](const TrainingOfRank& training, const TrainingStep& step, std::size_t ranks) -> Finding {
        const std::set<std::int64_t> layers = owed_in(step);
        Elements launched;  // missing gradients, too, if they are
        Events finished;
        std::vector<std::string> came, due;
        for (const Seen* launch : step.launches()) {
          if (launch->place.phase == Phase::kFinish) {
            launched.push_back(launch->elements);
            finished.push_back(launch);
            came.push_back(describe_operation(*launch));
          }
        }
        // A tied weight may go at any of its places.
        std::vector<std::int64_t> layers_listed = listed(training);
        const Elements by_first = in_order_of(layers_listed, layers, training);
        for (std::set<std::int64_t> rest = layers; const std::int64_t index : layers_listed) {
          if (rest.erase(index) > 0) {
            due.push_back(layer(index));
          }
        }
        std::ranges::reverse(layers_listed);
        Elements by_last = in_order_of(layers_listed, layers, training);
        std::ranges::reverse(by_last);
        const bool right = is_within(by_first, launched) || is_within(by_last, launched);
        if (!has_ended(step) || ranks == 1 || right) {
          return "";
        }
        const auto same = [](const std::string& name) { return name; };
        const auto wrong = std::ranges::mismatch(launched, by_first).in1 - launched.begin();
        const Seen* const first = wrong < std::ssize(launched) ? finished[wrong] : nullptr;
        return Finding(
                   "finish() should launch the gradients that backward computed only inside "
                   "NoSync, once each and in the order of `parameters`: " +
                   enumerated(due, same) + ". Launched in this step:" + story(step.launches()))
            .at(first, "out of order")
            .in_order(due, came);
      });
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .title = "Construction broadcasts rank 0's state",
     .points = 1,
     .hint = "As in stage 01: broadcast parameters, frozen ones too, and buffers of every dtype. "
             "Then register the hooks: a broadcast alone gives no points here.",
     .more = "If it passes in stage 01 and fails here, compare what comes after the broadcast. "
             "\"Something is hooked\" is found out by a backward: do your registrations live "
             "longer than the function that makes them?"},
    [] { judge(training(), state_is_rank_0s); }};

const GradedTest kMean{
    {.name = "gradients_are_the_mean_over_ranks",
     .title = "Gradients are the mean over all ranks",
     .points = 2,
     .hint = "After finish() every gradient is the sum over the ranks divided by the world size, "
             "in its own precision and with the same bits on all ranks.",
     .more = "First see whether it is the sum, the rank's own value, or a value with NaN. The "
             "sum: which gradients does finish() divide, all or those that it knows of? The "
             "rank's own: was it sent as a copy, and where is the result? NaN: look at "
             "nothing_touches_a_gradient_in_flight first. The order in which you wait does not "
             "matter; that you divide only after the wait does."},
    [] {
      judge(training(), all_of({gradients_are_means, gradients_have_the_same_bits}),
            misused_in_flight);
    }};

const GradedTest kTraining{
    {.name = "five_sgd_steps_end_at_the_oracle",
     .title = "Five SGD steps end where one process ends",
     .points = 2,
     .hint = "One step works, but not several? Between steps gradients are set to zero, or to none "
             "and are then different tensors. Get each parameter's gradient again in every step.",
     .more = "Find the first wrong step. If it is the second, list what your object holds at the "
             "end of finish(), member by member, and what each should be. Is a gradient that was "
             "set to none yesterday's tensor today? \"Lifetime\" and \"Interface\" in the handout "
             "say what must be gone."},
    [] {
      judge(small_models(), training_ends_at_the_oracle(plain_models()), misused_in_flight);
      judge(all_models(), training_ends_at_the_oracle({same_order_models()}), misused_in_flight);
      judge(training(), state_is_left_alone);
    }};

const GradedTest kAccumulation{
    {.name = "micro_batches_communicate_once",
     .title = "Micro-batches communicate once",
     .points = 2,
     .hint = "Inside NoSync a hook sends nothing, but records that a reduction is due. The sum is "
             "sent by the hook of a backward outside or by finish(), whichever comes first.",
     .more = "Draw one parameter's life through a step as boxes: nothing yet, accumulated inside "
             "NoSync, in flight. Which event takes it from which box to which? Try three orders "
             "on paper: inside then outside; inside then finish(); outside, then finish(), then "
             "inside. Who finds the gradients that no hook outside has seen, and in which order "
             "must all ranks send them?"},
    [] {
      judge(training(),
            all_of({no_sync_is_silent, owed_gradients_go_in_order, accumulated_sums_are_averaged}));
    }};

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_parameter",
     .title = "Each parameter has one all-reduce per step",
     .points = 2,
     .hint = "A step makes one all-reduce for each gradient, of exactly its bytes: none for frozen "
             "ones, one for a tied weight, none in forward, and nothing else is communicated.",
     .more = "Compare the listed bytes with the trainable parameters. Twice the same: is a tied "
             "weight hooked twice, or did finish() send what a hook had sent already? Missing: is "
             "a gradient known only to a hook that NoSync kept quiet? An extra finish() without a "
             "backward must find nothing to do: what would tell it so?"},
    [] { judge(training(), one_all_reduce_for_each_gradient); }};

const GradedTest kLaunch{
    {.name = "each_all_reduce_starts_in_its_own_hook",
     .title = "Each all-reduce starts in its own hook",
     .points = 3,
     .hint = "The hook of a parameter launches its all-reduce at once: not before the gradient is "
             "accumulated, not together with the next one, and not in finish().",
     .more = "TRACE=step.json shows each launch beside the hooks. Always one hook late? Then you "
             "launch the one before. All together at the end? Then they are launched by finish(). "
             "Before its gradient? Look at which parameter the function captured: by reference to "
             "what, and is that still there when it is called?"},
    [] { judge(training(), each_is_launched_when_ready); }};

const GradedTest kNoWait{
    {.name = "nothing_waits_inside_backward",
     .title = "Nothing waits inside backward",
     .points = 2,
     .hint = "A hook starts communication and returns. Any kind of wait, by Work, by a future or "
             "by polling, blocks backward until the network is done.",
     .more = "Follow every call that your hook makes, and ask of each whether it returns before "
             "other ranks have come. all_reduce(), wait() and value() do not, nor does a loop "
             "until isCompleted(). Is there a limit on how many may be in flight, or a clean-up "
             "of the step before, that waits in disguise?"},
    [] {
      judge(all_scenarios(), all_of({backward_never_waits, backward_launches}));
      judge(misuse(), backward_never_waits);
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_gradient_in_flight",
     .title = "Nothing touches a gradient in flight",
     .points = 1,
     .hint = "From its launch until it has been waited for, a gradient belongs to the network: "
             "neither write it (dividing it) nor read it. finish() waits for every handle.",
     .more =
         "The failure says which gradient, in which operation, and by whom. Between launch "
         "and wait even a read counts: a norm, a copy for later, a division, the next launch "
         "of the same tensor. If it is reported after finish(): which handles does finish() "
         "know, and is there a path on which one is overwritten before it has been waited for?"},
    [] {
      judge(all_scenarios(), all_of({buffers_in_flight_are_left_alone, every_step_reduces}));
    }};

const GradedTest kDestruction{
    {.name = "destruction_removes_the_hooks",
     .title = "Destruction removes the hooks",
     .points = 1,
     .hint = "The handle that on_gradient_ready returns removes the hook when it is destroyed. Who "
             "owns your handles, and does anything else keep them, or what they refer to, alive?",
     .more = "Draw an arrow from each object to what it keeps alive: synchronizer, GradientHook, "
             "function, what the function has captured. An arrow that leads back to where it "
             "began is the mistake. A raw pointer or a reference keeps nothing alive: what "
             "guarantees then that it is valid whenever the hook runs?"},
    [] {
      judge(destruction(), destruction_ends_everything);
      judge(misuse(), destruction_is_silent);
    }};

const GradedTest kGrowth{
    {.name = "a_hundred_steps_do_not_grow",
     .title = "Memory does not grow in a hundred steps",
     .points = 1,
     .hint = "What a step collects (handles, tensors, flags) must be gone when finish() returns, "
             "or the next step would process it again.",
     .more = "Which of your containers gets an element in a hook or in finish(), and which line "
             "takes it out again? Does that line also run when there was nothing to wait for? "
             "Memory grows too if a function is registered anew in each step."},
    [] {
      judge(training(), all_of({nothing_grows, every_step_reduces}));
    }};

const GradedTest kErrors{
    {.name = "mistakes_are_errors_and_hang_nobody",
     .title = "Wrong arguments are errors, and no rank hangs",
     .points = 1,
     .hint = "Check all arguments before the first broadcast, a gradient before its launch, and in "
             "the hook whether this parameter is still in flight: TORCH_CHECK, with its index.",
     .more = "Construction: stage 01's list. In a step there are two more: a gradient that cannot "
             "be sent, and a second backward. For the second ask what your hook can see when it "
             "is called again for a parameter that has not been waited for. overlapped_ddp.h says "
             "who throws, and from where."},
    [] { judge(misuse(), misuse_is_refused); }};

}  // namespace

}  // namespace ddp::testing
