// Virtual times equal the closed forms, to the nanosecond, in every repetition.
#include "ddp/simulation/simulated_network.h"

#include <cmath>

#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

using Tensors = std::vector<at::Tensor>;

// Fast and slow networks, with and without launch overhead, and with a beta that has no exact
// binary representation.
const std::vector<NetworkModel> kNetworks = {
    {.alpha_ns = 10'000, .beta_ns_per_byte = 0.1, .launch_overhead_ns = 0},
    {.alpha_ns = 1, .beta_ns_per_byte = 8.0 / 3, .launch_overhead_ns = 5'000},
    {.alpha_ns = 0, .beta_ns_per_byte = 2.5, .launch_overhead_ns = 7},
};

std::int64_t rounded(long double ns) { return std::llroundl(ns); }

// A collective, and its textbook time: p ranks, latency a, and x = the time of one rank's bytes on
// a link.
struct Collective {
  std::string name;
  std::function<WorkPtr(Rank&, const at::Tensor& own)> launch;
  std::function<long double(int p, long double a, long double x)> duration;
};

Tensors copies(const at::Tensor& tensor, int count) {
  Tensors all;
  for (int i = 0; i < count; ++i) {
    all.push_back(tensor.clone());
  }
  return all;
}

// The number of rounds of a tree that doubles the ranks it reaches.
int rounds(int p) {
  int count = 0;
  for (int reached = 1; reached < p; reached *= 2) {
    ++count;
  }
  return count;
}

WorkPtr launch_all_reduce(Rank& rank, const at::Tensor& own) {
  return all_reduce_async(own, rank.group());
}

WorkPtr launch_broadcast(Rank& rank, const at::Tensor& own) {
  Tensors tensors{own};
  return rank.group()->broadcast(tensors);
}

WorkPtr launch_reduce(Rank& rank, const at::Tensor& own) {
  Tensors tensors{own};
  return rank.group()->reduce(tensors);
}

WorkPtr launch_all_gather(Rank& rank, const at::Tensor& own) {
  std::vector<Tensors> outputs{copies(own, rank.world_size())};
  Tensors inputs{own};
  return rank.group()->allgather(outputs, inputs);
}

WorkPtr launch_all_gather_base(Rank& rank, const at::Tensor& own) {
  at::Tensor output = at::empty({rank.world_size() * own.numel()}, own.options());
  at::Tensor input = own;
  return rank.group()->_allgather_base(output, input);
}

WorkPtr launch_reduce_scatter(Rank& rank, const at::Tensor& own) {
  at::Tensor output = at::empty({own.numel() / rank.world_size()}, own.options());
  at::Tensor input = own;
  return rank.group()->_reduce_scatter_base(output, input);
}

WorkPtr launch_all_to_all(Rank& rank, const at::Tensor& own) {
  at::Tensor output = at::empty_like(own);
  at::Tensor input = own;
  std::vector<std::int64_t> equal;
  return rank.group()->alltoall_base(output, input, equal, equal);
}

WorkPtr launch_gather(Rank& rank, const at::Tensor& own) {
  std::vector<Tensors> outputs;
  if (rank.rank() == 0) {
    outputs.push_back(copies(own, rank.world_size()));
  }
  Tensors inputs{own};
  return rank.group()->gather(outputs, inputs);
}

WorkPtr launch_scatter(Rank& rank, const at::Tensor& own) {
  std::vector<Tensors> inputs;
  if (rank.rank() == 0) {
    inputs.push_back(copies(own, rank.world_size()));
  }
  Tensors outputs{own};
  return rank.group()->scatter(outputs, inputs);
}

const std::vector<Collective>& collectives() {
  using Real = long double;
  static const std::vector<Collective> all = {
      {"all-reduce", launch_all_reduce,
       [](int p, Real a, Real x) { return 2 * (p - 1) * (a + x / p); }},
      {"reduce-scatter", launch_reduce_scatter,
       [](int p, Real a, Real x) { return (p - 1) * (a + x / p); }},
      {"all-gather", launch_all_gather, [](int p, Real a, Real x) { return (p - 1) * (a + x); }},
      {"all-gather base", launch_all_gather_base,
       [](int p, Real a, Real x) { return (p - 1) * (a + x); }},
      {"all-to-all", launch_all_to_all,
       [](int p, Real a, Real x) { return (p - 1) * (a + x / p); }},
      {"gather", launch_gather, [](int p, Real a, Real x) { return (p - 1) * (a + x); }},
      {"scatter", launch_scatter, [](int p, Real a, Real x) { return (p - 1) * (a + x); }},
      {"broadcast", launch_broadcast, [](int p, Real a, Real x) { return rounds(p) * (a + x); }},
      {"reduce", launch_reduce, [](int p, Real a, Real x) { return rounds(p) * (a + x); }},
      {"barrier", [](Rank& rank, const at::Tensor&) { return rank.group()->barrier(); },
       [](int p, Real a, Real) { return rounds(p) * a; }},
  };
  return all;
}

void run(int world_size, const NetworkModel& network, const std::function<void(Rank&)>& body) {
  testing::RankOptions options;
  options.world_size = world_size;
  options.network = network;
  testing::run_ranks(options, body);
}

// 840 elements divide by every world size up to 8.
at::Tensor own_tensor() { return at::ones({840}, at::kFloat); }
constexpr std::int64_t kBytes = 840 * 4;

TEST(SimulatedNetwork, CollectivesTakeTheirClosedForms) {
  for (const NetworkModel& network : kNetworks) {
    for (int world_size = 1; world_size <= 8; ++world_size) {
      run(world_size, network, [&](Rank& rank) {
        for (int repeat = 0; repeat < 2; ++repeat) {
          for (const Collective& collective : collectives()) {
            const std::int64_t begin = rank.network().start_step();
            ASSERT_EQ(rank.clock()->now(), begin);
            rank.clock()->advance(1'000 * rank.rank());  // the last rank decides
            collective.launch(rank, own_tensor())->wait();
            const std::int64_t launched =
                begin + 1'000 * (world_size - 1) + network.launch_overhead_ns;
            const std::int64_t lasts = rounded(collective.duration(
                world_size, network.alpha_ns, network.beta_ns_per_byte * kBytes));
            EXPECT_EQ(rank.clock()->now(), launched + lasts) << collective.name;
            EXPECT_EQ(rank.network().step_end(), launched + lasts) << collective.name;
          }
        }
      });
    }
  }
}

// Two all-reduces while the ranks compute: the second queues behind the first, and nothing hides
// it.
TEST(SimulatedNetwork, CollectivesQueueAndOverlapWithComputation) {
  const NetworkModel network{.alpha_ns = 100, .beta_ns_per_byte = 1, .launch_overhead_ns = 10};
  constexpr std::int64_t kLasts = 2 * (100 + kBytes / 2);
  run(2, network, [&](Rank& rank) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::int64_t begin = rank.network().start_step();
      const at::Tensor a = own_tensor();
      const at::Tensor b = own_tensor();
      const WorkPtr first = all_reduce_async(a, rank.group());
      rank.clock()->advance(500 + 20 * rank.rank());
      const WorkPtr second = all_reduce_async(b, rank.group());
      EXPECT_EQ(rank.clock()->now(), begin + 520 + 20 * rank.rank()) << "launches do not wait";
      second->wait();
      EXPECT_EQ(rank.clock()->now(), begin + 10 + 2 * kLasts);
      first->wait();
      EXPECT_EQ(rank.clock()->now(), begin + 10 + 2 * kLasts) << "it ended long ago";

      // Launched when the network is idle again: it starts at the later rank's launch.
      rank.clock()->advance(5'000 + 20 * rank.rank());
      all_reduce(a, rank.group());
      EXPECT_EQ(rank.clock()->now(), begin + 10 + 2 * kLasts + 5'020 + 10 + kLasts);
    }
  });
}

TEST(SimulatedNetwork, StepEndCountsWhatNobodyWaitedFor) {
  const NetworkModel network{.alpha_ns = 100, .beta_ns_per_byte = 1, .launch_overhead_ns = 0};
  constexpr std::int64_t kLasts = 2 * (100 + kBytes / 2);
  run(2, network, [&](Rank& rank) {
    const std::int64_t begin = rank.network().start_step();
    const at::Tensor by_future = own_tensor();
    const at::Tensor by_poll = own_tensor();
    all_reduce_async(by_future, rank.group())->getFuture()->wait();
    EXPECT_EQ(rank.clock()->now(), begin) << "nobody can see this wait";
    EXPECT_EQ(rank.network().step_end(), begin + kLasts);

    const WorkPtr polled = all_reduce_async(by_poll, rank.group());
    while (!polled->isCompleted()) {
    }
    EXPECT_EQ(rank.clock()->now(), begin + 2 * kLasts) << "a poll that says so is a wait";

    // A new step begins, on every rank, when everything has ended on all ranks.
    const at::Tensor last = own_tensor();
    rank.clock()->advance(300 * rank.rank());
    const WorkPtr pending = all_reduce_async(last, rank.group());
    EXPECT_EQ(rank.network().start_step(), begin + 3 * kLasts + 300);
    EXPECT_EQ(rank.network().step_end(), begin + 3 * kLasts + 300)
        << "it belongs to the step before";
    pending->wait();
    EXPECT_EQ(rank.clock()->now(), begin + 3 * kLasts + 300);
  });
}

TEST(SimulatedNetwork, DataReallyMoves) {
  run(3, {}, [](Rank& rank) {
    const at::Tensor tensor = at::full({2}, rank.rank() + 1.0);
    all_reduce(tensor, rank.group());
    EXPECT_EQ(tensor[1].item<double>(), 6);
  });
}

TEST(SimulatedNetwork, UnknownOperationHasNoCost) {
  EXPECT_THROW(cost_ns({}, c10d::OpType::COALESCED, 1, 2), c10::Error);
}

}  // namespace
}  // namespace ddp
