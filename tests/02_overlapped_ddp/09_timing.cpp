#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "overlapped.h"
#include "support/grading.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

struct Scenario {
  const char* name;
  NetworkModel network;
  std::vector<ChainLayer> layers;  // costs are those of the fastest rank
  std::int64_t slower_ns;          // added 0, 1, 2 ... times to a layer's backward
};

std::vector<Scenario> scenarios() {
  const std::vector<ChainLayer> even(5, {1000, 50'000, 100'000});
  const std::vector<ChainLayer> uneven = {
      {64, 20'000, 30'000}, {4096, 90'000, 210'000}, {1, 1'000, 2'000}, {2048, 40'000, 70'000}};
  return {{"the network is fast: only the last all-reduce shows",
           {.alpha_ns = 1'000, .beta_ns_per_byte = 0.1},
           even,
           0},
          {"the network is slow: all-reduces queue up",
           {.alpha_ns = 150'000, .beta_ns_per_byte = 8.0},
           even,
           7'000},
          {"launches cost time",
           {.alpha_ns = 10'000, .beta_ns_per_byte = 1.0, .launch_overhead_ns = 5'003},
           uneven,
           11'000},
          {"layers and ranks are uneven, without latency",
           {.alpha_ns = 0, .beta_ns_per_byte = 13.7, .launch_overhead_ns = 0},
           uneven,
           90'001}};
}

// The slowest rank changes from layer to layer.
std::int64_t backward_ns(const Scenario& scenario, std::size_t layer, int rank, int world_size) {
  const std::size_t turn = (layer + rank) % world_size;
  return scenario.layers[layer].backward_ns + scenario.slower_ns * static_cast<std::int64_t>(turn);
}

ChainModel model_of(Rank& rank, const Scenario& scenario) {
  std::vector<ChainLayer> layers = scenario.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].backward_ns = backward_ns(scenario, i, rank.rank(), rank.world_size());
  }
  return {rank, layers};
}

struct Expected {
  std::int64_t overlapped = 0;  // both since the start of the step
  std::int64_t naive = 0;
  std::string chain;  // its derivation, for the message
};

// f_i = max(ready_i over ranks, f_(i-1)) + cost_i, where each launch costs its rank
// launch_overhead_ns. Naive: backward first, then one blocking all-reduce after another.
Expected expected_of(const Scenario& scenario, int world_size) {
  const std::int64_t launch = scenario.network.launch_overhead_ns;
  std::int64_t forward = 0;
  for (const ChainLayer& layer : scenario.layers) {
    forward += layer.forward_ns;
  }
  std::vector<std::int64_t> clocks(world_size, forward);
  Expected expected;
  std::int64_t communication = 0;
  std::ostringstream chain;
  for (std::size_t i = scenario.layers.size(); i-- > 0;) {
    const auto bytes = scenario.layers[i].elements * static_cast<std::int64_t>(sizeof(float));
    const auto cost = cost_ns(scenario.network, c10d::OpType::ALLREDUCE, bytes, world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      clocks[rank] += backward_ns(scenario, i, rank, world_size) + launch;
    }
    const std::int64_t launched = *std::ranges::max_element(clocks);
    expected.overlapped = std::max(launched, expected.overlapped) + cost;
    communication += cost + launch;
    chain << "\n    layer " << i << ": launched everywhere at " << launched << ", costs " << cost
          << ", ends at " << expected.overlapped;
  }
  const auto launches = static_cast<std::int64_t>(scenario.layers.size()) * launch;
  expected.naive = *std::ranges::max_element(clocks) - launches + communication;
  expected.chain = chain.str();
  return expected;
}

std::string diagnosis(std::int64_t took, const Expected& expected) {
  if (took < expected.overlapped) {
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

void expect_step_time(Rank& rank, const Scenario& scenario) {
  ChainModel model = model_of(rank, scenario);
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  const Expected expected = expected_of(scenario, rank.world_size());
  for (int step = 0; step < 2; ++step) {
    clear_gradients(model.parameters(), /*to_none=*/step == 0);
    const std::int64_t start = rank.network().start_step();
    const at::Tensor loss = model.loss(step);
    {
      // Waiting on another thread must not advance this rank's clock meanwhile.
      std::optional<HeldCompletions> held;
      if (rank.checked() != nullptr) {
        held.emplace(*rank.checked());
      }
      loss.backward();
    }
    synchronizer->finish();
    const std::int64_t took = rank.network().step_end() - start;
    if (took != expected.overlapped) {
      ADD_FAILURE() << "step " << step << " took " << took << " virtual ns, and should take "
                    << expected.overlapped << " (" << scenario.name
                    << ")\n  diagnosis: " << diagnosis(took, expected)
                    << "\n  the chain:" << expected.chain << "\n  naive DDP would take "
                    << expected.naive;
      return;
    }
    EXPECT_LE(took, expected.naive) << "slower than naive DDP (" << scenario.name << ")";
  }
}

const GradedTest kStepTime{
    {.name = "step_time_is_the_chain",
     .points = 2,
     .hint = "Each all-reduce starts when its gradient is ready on all ranks and the previous one "
             "is done. Look for a late launch, a different order, a wait in a hook, or a barrier."},
    [] {
      for (const Scenario& scenario : scenarios()) {
        RankOptions options;
        options.network = scenario.network;
        const auto body = [&](Rank& rank) { expect_step_time(rank, scenario); };
        run_worlds({2, 3, 4}, body, options);
        if (options.network.launch_overhead_ns == 0) {  // a single rank need not launch anything
          run_worlds({1}, body, options);
        }
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }};

}  // namespace

}  // namespace ddp::testing
