#include "support/questions.h"

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

const Questions kAboutSteps{{"three layers, three steps", "float64, five ranks"},
                            of_each_step(about_a_step)};
const Questions kAboutMissing{{"layers that one rank uses"}, about_missing_gradients()};

}  // namespace

}  // namespace ddp::testing
