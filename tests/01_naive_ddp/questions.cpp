#include "grader/questions.h"

#include <algorithm>

#include "ddp/network_model.h"

// What to ask about a step that communicates after backward.

namespace ddp::testing {

namespace {

std::vector<Question> about_a_step(const Evidence& evidence, const TrainingOfRank& training,
                                   int number) {
  const TrainingStep& step = training.steps.at(number);
  const bool plain =
      step.launches.size() > 1 && std::ranges::all_of(step.launches, [](const Seen* launch) {
        return is_all_reduce(*launch) && launch->place.phase == Phase::kFinish;
      });
  if (!plain || step.ready.empty()) {
    return {};
  }
  const NetworkModel network{.alpha_ns = 10'000, .beta_ns_per_byte = 1};
  const int ranks = evidence.world.ranks;
  std::int64_t each = 0;
  std::int64_t bytes = 0;
  for (const Seen* launch : step.launches) {
    each += cost_ns(network, c10d::OpType::ALLREDUCE, launch->bytes, ranks);
    bytes += launch->bytes;
  }
  const std::int64_t together = cost_ns(network, c10d::OpType::ALLREDUCE, bytes, ranks);
  const std::string count = std::to_string(step.launches.size());
  const std::string where = on_rank_in_step(training, number);
  const auto course = course_of(evidence, training, number);
  return {
      {"one message or many",
       where + "finish() launched " + count + " all-reduces of " + std::to_string(bytes) +
           " bytes in all, on " + std::to_string(ranks) +
           " ranks. With a latency of 10 us and 1 ns a byte, how long do they take, one after "
           "another? How long would one all-reduce of the same bytes take, and what is saved?",
       "2 (p-1) alpha + 2 (p-1)/p S beta each: " + std::to_string(each) + " ns; as one " +
           std::to_string(together) + " ns. Saved are the latencies of all but one: " +
           std::to_string(each - together) + " ns, up to rounding. The bytes cost the same.",
       course},
      {"the moment of the first all-reduce",
       where + "the gradient of layer " + std::to_string(step.ready.front()->index) +
           " was ready first, but the first all-reduce left only after that of layer " +
           std::to_string(step.ready.back()->index) +
           " was ready. What in your code decides that, and what does it cost? May two ranks "
           "launch these " +
           count + " all-reduces in different orders?",
       "All communication is in finish(), which the caller calls after backward: nothing overlaps, "
       "so the step takes all of computing plus all of communication. All ranks have to launch in "
       "one order, as a collective is paired with the others' by its place in the order alone.",
       course}};
}

// Where a layer had no gradient of the rank's own, and was reduced all the same.
std::vector<Question> about_missing(const Evidence& evidence, const TrainingOfRank& training,
                                    int number) {
  std::vector<Question> asked;
  const TrainingStep& step = training.steps.at(number);
  for (const auto& [layer, local] : step.local) {
    std::vector<std::string> owners;
    for (const TrainingOfRank& other : trainings_in(evidence).at(0)) {
      const auto theirs = other.steps.find(number);
      if (theirs != other.steps.end() && theirs->second.local.at(layer).defined()) {
        owners.push_back(std::to_string(other.rank));
      }
    }
    const bool reduced = std::ranges::any_of(step.launches, [&, own = layer](const Seen* launch) {
      return is_all_reduce(*launch) && carried_layer(training, *launch) == own;
    });
    if (local.defined() || owners.size() != 1 || !reduced) {
      continue;
    }
    const std::string ranks = std::to_string(evidence.world.ranks);
    asked.push_back(
        {"a gradient that is missing",
         on_rank_in_step(training, number) + "backward computed no gradient of layer " +
             std::to_string(layer) + ", and yet your code launched an all-reduce of its " +
             std::to_string(training.parameter.at(layer).numel()) +
             " elements. What did it carry, and what would have happened without it? What "
             "is the gradient after finish()?",
         c10::str("Zeros. Rank ", owners[0],
                  " alone has that gradient and launches its all-reduce, too: without this "
                  "rank's it would wait without end, or be paired with this rank's next one. "
                  "Afterwards every rank has rank ",
                  owners[0], "'s gradient / ", ranks, ": the mean over all ", ranks,
                  " ranks, not over those that have one."),
         course_of(evidence, training, number)});
  }
  return asked;
}

const Questions kAboutSteps{{"three layers, three steps", "float64, five ranks"},
                            of_each_step(about_a_step)};
const Questions kAboutMissing{{"layers that one rank uses"}, of_each_step(about_missing)};

}  // namespace

}  // namespace ddp::testing
