#include <algorithm>
#include <sstream>

#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/grading.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

/// A network, and what a layer costs: `backward_ns`, doubled for every third layer, plus an extra that
/// rotates over the ranks.
struct TimingCase {
  const char* name;
  NetworkModel network;
  std::int64_t backward_ns;
  std::int64_t uneven_ns;
};

constexpr std::int64_t kForward = 100'000;

const std::vector<TimingCase>& timing_cases() {
  static const std::vector<TimingCase> all = {
      {"the network is slow: all-reduces queue up",
       {.alpha_ns = 150'000, .beta_ns_per_byte = 8.0},
       100'000,
       7'000},
      {"the network is fast: only the last all-reduce shows",
       {.alpha_ns = 1'000, .beta_ns_per_byte = 0.1},
       100'000,
       0},
      {"launches cost time",
       {.alpha_ns = 10'000, .beta_ns_per_byte = 1.0, .launch_overhead_ns = 5'003},
       50'000,
       11'000},
      {"layers and ranks are uneven, without latency",
       {.alpha_ns = 0, .beta_ns_per_byte = 13.7, .launch_overhead_ns = 0},
       30'000,
       90'001}};
  return all;
}

std::int64_t backward_ns(const TimingCase& timing, std::int64_t layer, int rank, int world_size) {
  const std::int64_t turn = (layer + rank) % world_size;
  return timing.backward_ns * (layer % 3 == 0 ? 2 : 1) + timing.uneven_ns * turn;
}

struct Expected {
  std::int64_t naive = 0;  // since the start of the step
  std::string derivation;  // for the message
  Chain chain;
};

// f_i = max(ready_i over ranks, f_(i-1)) + cost_i, where each launch costs its rank
// launch_overhead_ns. Naive: backward first, then one blocking all-reduce after another.
Expected expected_of(const TimingCase& timing, const TrainingOfRank& training,
                     const TrainingStep& step, int world_size) {
  Chain overlapped(timing.network, world_size);
  Chain naive(timing.network, world_size);
  const auto compute = [&](const std::function<std::int64_t(std::size_t rank)>& ns) {
    overlapped.compute(ns);
    naive.compute(ns);
  };
  const auto bytes_of = [&](const Seen& ready) {
    return static_cast<std::int64_t>(training[kParameter].at(ready.index).nbytes());
  };
  std::ostringstream derivation;
  compute([](std::size_t) { return kForward; });
  const Events gradients = ready_in(step);
  for (const Seen* ready : gradients) {
    compute([&](std::size_t rank) {
      return backward_ns(timing, ready->index, static_cast<int>(rank), world_size);
    });
    const std::int64_t launched = overlapped.launch();
    const std::int64_t ends = overlapped.carry(c10d::OpType::ALLREDUCE, bytes_of(*ready), launched);
    if (gradients.size() < 10) {
      derivation << "\n    layer " << ready->index << ": launched everywhere at "
                 << duration(launched) << ", costs "
                 << duration(cost_ns(timing.network, c10d::OpType::ALLREDUCE, bytes_of(*ready),
                                     world_size))
                 << ", ends at " << duration(ends);
    }
  }
  for (const Seen* ready : gradients) {
    naive.wait(naive.run(c10d::OpType::ALLREDUCE, bytes_of(*ready)));
  }
  overlapped.wait(overlapped.network_is_free());
  return {naive.now(), derivation.str(), overlapped};
}

std::string diagnosis(std::int64_t took, const Expected& expected) {
  if (took < expected.chain.now()) {
    return "less than is possible: fewer all-reduces, or fewer bytes?";
  }
  if (took == expected.naive) {
    return "exactly the time of naive DDP: is everything launched after backward, or waited for as "
           "soon as it is launched?";
  }
  return took > expected.naive
             ? "slower than naive DDP: does something wait inside backward, or is "
               "more communicated than the gradients?"
             : "something is launched late, in another order, or waited for "
               "inside backward, or more is communicated than the gradients";
}

Finding wrong_time(const Evidence& evidence, const TimingCase& timing) {
  const int world_size = evidence.world.ranks;
  if (world_size == 1 && timing.network.launch_overhead_ns > 0) {
    return "";  // a single rank need not launch anything
  }
  const ComputeCost cost =
      compute_cost(kForward, [&timing, world_size](std::int64_t layer, int rank) {
        return backward_ns(timing, layer, rank, world_size);
      });
  const VirtualTime time(evidence, timing.network, cost);
  const TrainingOfRank& training = trainings_in(evidence).at(0).at(0);
  std::vector<int> steps = ended_steps(training);
  std::erase_if(steps, [&](int number) {
    const Events ready = ready_in(training.steps.at(number));
    return ready.empty() ||
           std::ranges::any_of(ready, [](const Seen* seen) { return seen->place.no_sync; });
  });
  const auto expected_in = [&](int number) {
    return expected_of(timing, training, training.steps.at(number), world_size);
  };
  return wrong_times(
      time, cost, steps, [&](int number) { return std::vector{expected_in(number).chain}; },
      [&](int number, std::int64_t took, const Chain& chain) {
        const Expected expected = expected_in(number);
        std::ostringstream text;
        text << "step " << number << " took " << duration(took) << " of simulated time, expected "
             << duration(chain.now()) << " (" << timing.name
             << ")\n  diagnosis: " << diagnosis(took, expected)
             << "\n  the chain:" << expected.derivation << "\n  naive DDP would take "
             << duration(expected.naive);
        return text.str();
      });
}

Finding steps_take_the_chain(const Evidence& evidence) {
  Finding found;
  for (const TimingCase& timing : timing_cases()) {
    if (Finding each = wrong_time(evidence, timing);
        found.empty() && (!each.empty() || !found.times)) {
      found = std::move(each);  // of the first network, if nothing is wrong
    }
  }
  return found;
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain",
     .title = "Step time is backward with overlapped all-reduces",
     .points = 2,
     .hint = "Each all-reduce starts when its gradient is ready on all ranks and the previous one "
             "is done. Look for a late launch, a different order, a wait in a hook, or a barrier.",
     .more = "Do the table of \"A worked miniature\" for the failing network: which f_i is the "
             "first that your step misses? Each later than its gradient: a launch in the wrong "
             "hook. One gap: something waits, or a barrier. Right until the end, then late: what "
             "does finish() communicate besides waiting?"},
    [] {
      judge(named(training(),
                  {"three layers, three steps", "one rank", "float64, five ranks",
                   "layers of several dtypes", "310 layers", "sixty steps of several kinds"}),
            steps_take_the_chain);
    }};

}  // namespace

}  // namespace ddp::testing
