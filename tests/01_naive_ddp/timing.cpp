#include <algorithm>
#include <numeric>

#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/grading.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

constexpr std::int64_t kForward = 100'000;
constexpr std::int64_t kBackward = 200'000;  // of a layer
constexpr std::int64_t kSlower = 7'000;      // of a layer, compared with the rank before

// Communication begins when the slowest rank has finished backward.
Chain chain_of(const Evidence& evidence, int number, const NetworkModel& network, bool flat) {
  const TrainingOfRank& training = trainings_in(evidence).at(0).at(0);
  std::vector<std::int64_t> messages;
  for (const std::int64_t index : trainable(training)) {
    messages.push_back(static_cast<std::int64_t>(training[kParameter].at(index).nbytes()));
  }
  if (flat) {
    messages = {std::reduce(messages.begin(), messages.end())};
  }
  const TrainingStep& step = training.steps.at(number);
  const auto forwards = std::ranges::count_if(step.of(EventKind::kPhase), [](const Seen* seen) {
    return seen->place.phase == Phase::kForward;
  });
  const auto backwards = static_cast<std::int64_t>(ready_in(step).size());
  Chain chain(network, evidence.world.ranks);
  chain.compute([&](std::size_t rank) {
    return forwards * kForward +
           backwards * (kBackward + kSlower * static_cast<std::int64_t>(rank));
  });
  for (const std::int64_t bytes : messages) {
    chain.wait(chain.run(c10d::OpType::ALLREDUCE, bytes));
  }
  return chain;
}

std::string off_the_sum(int step, std::int64_t took, const Chain& chain) {
  const std::vector<Span>& carried = chain.carried();
  const std::int64_t compute = carried.empty() ? chain.now() : carried.front().launched_ns;
  return "step " + std::to_string(step) + " took " + duration(took) +
         " of simulated time, expected " + duration(chain.now()) + ": " + duration(compute) +
         " of computing and then " + duration(chain.now() - compute) + " of communication (" +
         (took > chain.now() ? "longer: more operations or more bytes)"
                             : "shorter: started before backward had ended, or fewer bytes)");
}

Finding wrong_time(const Evidence& evidence, const NetworkModel& network, bool flat) {
  const ComputeCost cost =
      compute_cost(kForward, [](std::int64_t, int rank) { return kBackward + kSlower * rank; });
  return wrong_times(
      VirtualTime(evidence, network, cost), cost, ended_steps(trainings_in(evidence).at(0).at(0)),
      [&](int step) { return std::vector{chain_of(evidence, step, network, flat)}; }, off_the_sum);
}

Predicate steps_take_their_time(bool flat) {
  return [flat](const Evidence& evidence) -> Finding {
    const NetworkModel fast{.alpha_ns = 10'000, .beta_ns_per_byte = 0.1};
    const NetworkModel slow{.alpha_ns = 250'000, .beta_ns_per_byte = 8.0};
    Finding found = wrong_time(evidence, fast, flat);
    return found.empty() ? wrong_time(evidence, slow, flat) : found;
  };
}

std::vector<Scenario> timed(Form form) {
  return named(training(form),
               {"three layers, three steps", "one rank", "float64, five ranks", "310 layers",
                "sixty steps of several kinds", "a NoSync scope between backward and finish()"},
               form == Form::kFlat ? "flat: " : "");
}

const GradedTest kStepTime{
    {.name = "step_time_is_compute_plus_communication",
     .title = "Step time is compute plus communication",
     .points = 1,
     .hint = "Nothing overlaps in this stage: all-reduces start after backward, one after another, "
             "and nothing else is communicated. Count yours, and look for a barrier.",
     .more = "Take the numbers of the failure and the formula of \"Cost model\": the difference, "
             "divided by 2(p-1) alpha, says how many operations too many there are; by the cost "
             "of a byte, how many bytes. What do you call besides the all-reduces, and does "
             "anything begin before backward has ended?"},
    [] {
      judge(timed(Form::kPerParameter), steps_take_their_time(false));
      judge(timed(Form::kFlat), steps_take_their_time(true));
    }};

}  // namespace

}  // namespace ddp::testing
