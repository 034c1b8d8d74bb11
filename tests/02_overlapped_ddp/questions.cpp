#include "grader/questions.h"

#include <algorithm>

// What to ask about a step whose all-reduces overlap with backward.

namespace ddp::testing {

namespace {

std::vector<Question> about_overlap(const Evidence& evidence, const TrainingOfRank& training,
                                    int number) {
  const TrainingStep& step = training.steps.at(number);
  std::vector<Question> asked;
  for (const Seen* launch : step.launches) {
    const std::int64_t layer = carried_layer(training, *launch);
    const auto own = std::ranges::find(step.ready, layer, [](const Seen* s) { return s->index; });
    const auto next = std::ranges::find_if(
        step.ready, [&](const Seen* ready) { return ready->order > launch->order; });
    if (!is_all_reduce(*launch) || own == step.ready.end() || next == step.ready.end() ||
        launch->place.phase != Phase::kBackward || (*own)->order > launch->order) {
      continue;
    }
    asked.push_back(
        {"an all-reduce that leaves early",
         on_rank_in_step(training, number) + describe_operation(*launch) +
             " left before the gradient of layer " + std::to_string((*next)->index) +
             " was ready. Why may it, what runs while it is on its way, and where does your code "
             "wait for it?",
         "It carries the gradient of layer " + std::to_string(layer) +
             ", which was ready already, and nothing of layer " + std::to_string((*next)->index) +
             ". Meanwhile backward goes on with the layers that are left: that is the overlap. The "
             "wait for it comes in finish() at the latest, before anybody reads it: see the "
             "events.",
         course_of(evidence, training, number)});
  }
  return asked;
}

std::vector<Question> about_micro_batches(const Evidence& evidence, const TrainingOfRank& training,
                                          int number) {
  const TrainingStep& step = training.steps.at(number);
  std::vector<Question> asked;
  for (const auto& [layer, parameter] : training.parameter) {
    const auto ready =
        std::ranges::count(step.ready, layer, [](const Seen* s) { return s->index; });
    const auto inside = std::ranges::count_if(step.ready, [&, own = layer](const Seen* seen) {
      return seen->index == own && seen->place.no_sync;
    });
    const auto launched =
        std::ranges::count_if(step.launches, [&, own = layer](const Seen* launch) {
          return is_all_reduce(*launch) && carried_layer(training, *launch) == own;
        });
    if (inside == 0 || ready - inside != 1 || launched != 1) {
      continue;
    }
    asked.push_back(
        {"micro-batches",
         on_rank_in_step(training, number) + "backward computed the gradient of layer " +
             std::to_string(layer) + " " + std::to_string(ready) +
             " times, and one all-reduce carried it. In which of these backwards could it leave, "
             "and what does it carry? What would be wrong with one all-reduce for each backward?",
         "In the last one, which alone is outside NoSync. It carries what autograd has "
         "accumulated, "
         "the sum over all " +
             std::to_string(ready) +
             " micro-batches. One for each would send as many times the bytes; and reducing a "
             "gradient that has been reduced before would count other ranks' parts twice.",
         course_of(evidence, training, number)});
  }
  return asked;
}

const Questions kAboutOverlap{{"three layers, three steps", "float64, five ranks"},
                              of_each_step(about_overlap)};
const Questions kAboutMicroBatches{{"two micro-batches inside NoSync, one outside"},
                                   of_each_step(about_micro_batches)};

}  // namespace

}  // namespace ddp::testing
