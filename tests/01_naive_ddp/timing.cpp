#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "01_naive_ddp/naive_ddp.h"
#include "ddp/meters/statistics.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/grading.h"
#include "grader/real_time_report.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

constexpr std::int64_t kForward = 100'000;
constexpr std::int64_t kBackward = 200'000;  // of a layer
constexpr std::int64_t kSlower = 7'000;      // of a layer, compared with the rank before

// Communication begins when the slowest rank has finished backward.
Finding wrong_times(const Evidence& evidence, const NetworkModel& network, bool flat) {
  const ComputeCost cost =
      compute_cost(kForward, [](std::int64_t, int rank) { return kBackward + kSlower * rank; });
  const VirtualTime time(evidence, network, cost);
  Finding found;
  const TrainingOfRank& training = trainings_in(evidence).at(0).at(0);
  std::vector<std::int64_t> messages;
  for (const std::int64_t index : training.trainable) {
    messages.push_back(static_cast<std::int64_t>(training.parameter.at(index).nbytes()));
  }
  if (flat) {
    messages = {std::reduce(messages.begin(), messages.end())};
  }
  for (const auto& [number, step] : training.steps) {
    const auto forwards = std::ranges::count_if(evidence.of[0], [&, n = number](const Seen& seen) {
      return seen.place.step == n && seen.kind == EventKind::kPhase &&
             seen.place.phase == Phase::kForward;
    });
    const auto backwards = static_cast<std::int64_t>(step.ready.size());
    Chain chain(network, evidence.world.ranks);
    chain.compute([&](std::size_t rank) {
      return forwards * kForward +
             backwards * (kBackward + kSlower * static_cast<std::int64_t>(rank));
    });
    const std::int64_t compute = chain.now();
    for (const std::int64_t bytes : messages) {
      chain.wait(chain.run(c10d::OpType::ALLREDUCE, bytes));
    }
    const std::int64_t took = step.ended ? time.step_ns(number) : chain.now();
    if (took != chain.now()) {
      found = "step " + std::to_string(number) + " took " + std::to_string(took) +
              " virtual ns, and should take " + std::to_string(compute) + " of computing + " +
              std::to_string(chain.now() - compute) +
              " of communication; beyond computing it took " + std::to_string(took - compute) +
              " (a smaller number: started before backward had ended, or fewer bytes; a larger "
              "one: more operations or more bytes)";
    }
    if (step.ended) {
      found = with_times(std::move(found), number, chain.now(), chain, cost);
    }
    if (!found.empty()) {
      break;
    }
  }
  return found;
}

Predicate steps_take_their_time(bool flat) {
  return [flat](const Evidence& evidence) -> Finding {
    const NetworkModel fast{.alpha_ns = 10'000, .beta_ns_per_byte = 0.1};
    const NetworkModel slow{.alpha_ns = 250'000, .beta_ns_per_byte = 8.0};
    Finding found = wrong_times(evidence, fast, flat);
    return found.empty() ? wrong_times(evidence, slow, flat) : found;
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

// The same in real time: a report, worth no points.

void report_finish(ReportingRank& rank) {
  constexpr int kGradients = 40;
  constexpr std::int64_t kElements = 4096;
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < kGradients; ++i) {
    parameters.push_back(at::zeros({kElements}).set_requires_grad(true));
    parameters.back().mutable_grad() = at::ones({kElements});
  }
  const auto naive = make_naive_ddp(parameters, {}, rank.group());
  const auto flat = make_flat_ddp(parameters, {}, rank.group());
  const auto finish_of = [](const char* name, GradientSynchronizer& synchronizer) {
    return TimedWay{name, [&synchronizer] {
                      const Stopwatch watch;
                      synchronizer.finish();
                      return 1e3 * watch.seconds();
                    }};
  };
  report_ratio(
      rank,
      c10::str("finish() of ", kGradients, " gradients of ", kElements * sizeof(float) / 1024,
               " KiB on a link of 1 Gbit/s and 0.2 ms latency, 2 ranks:"),
      finish_of("per parameter", *naive), finish_of("flat", *flat), /*rounds=*/3);
}

const GradedTest kWallClock{
    {.name = "wall_clock_on_a_rate_limited_link",
     .points = 0,
     .hint = "A report, worth no points: how much one message saves over many if each message has "
             "a cost.",
     .more = "Nothing can be wrong here. Put your two times into the formulas of \"Cost model\": "
             "which alpha would explain the difference, and is it plausible? Question 1.3 of the "
             "writeup asks the same of the figure."},
    [] { run_on_limited_link({.alpha_ns = 200'000, .beta_ns_per_byte = 8.0}, report_finish); }};

}  // namespace

}  // namespace ddp::testing
