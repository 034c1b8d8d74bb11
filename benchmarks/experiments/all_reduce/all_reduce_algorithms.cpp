// The student's ring compared with three other all-reduces on the simulated network, for several
// message sizes and world sizes.
//
// Source: the algorithms are those of Thakur, Rabenseifner and Gropp (2005), see
// baselines/all_reduces.cpp; of this experiment nothing was published.
//
// The code of each really runs and data really moves; time is that of the alpha-beta model, the same
// in every run. Worlds that are too large for this machine follow on the simulated cluster, where one
// rank stands for all; there data does not move. A call begins on all ranks together; its time is that
// of the slowest rank. Sizes are in bytes of float32 per rank.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "ddp/cluster/cluster.h"
#include "ddp/ranks/stage_library.h"
#include "experiments/all_reduce/all_reduce.h"
#include "measuring/on_cluster.h"
#include "measuring/resumable_rows.h"
#include "measuring/virtual_run.h"

namespace ddp {
namespace {

constexpr const char* kTree = "tree";
const std::vector<std::string> kAlgorithms = {kRing, "butterfly", "recursive doubling", kTree};

AllReduceSettings algorithms_defaults(const std::string& preset) {
  const bool more = preset == "full" || preset == "paper";
  AllReduceSettings settings;
  settings.worlds = {2, 3, 4, 5, 6, 7, 8, 12, 16};
  if (more) {
    settings.worlds.insert(settings.worlds.end(), {24, 32});
  }
  settings.sizes = sizes_between(more ? 1 << 8 : 1 << 10, more ? 4 << 20 : 1 << 20, 2);
  // Powers of two: otherwise ranks without partners do other things than those with.
  settings.on_cluster = {32, 64, 128, 256, 512, 1024, 2048, 4096};
  return settings;
}

void add_algorithms_flags(CLI::App& line, AllReduceSettings& settings) {
  const auto number = [&](const char* flag, auto& value, const char* what) {
    line.add_option(flag, value, what)->check(CLI::NonNegativeNumber)->capture_default_str();
  };
  line.remove_option(line.get_option("--trace"));  // each call would be one of its own
  number("--alpha-ns", settings.network.alpha_ns, "Latency of a message");
  number("--beta-ns-per-byte", settings.network.beta_ns_per_byte, "Time of a byte");
  line.add_option("--sizes", settings.sizes, "Bytes of a rank's tensor; default: the preset's")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{64} << 20));
}

// One call of each algorithm with each size, one step of the body each.
void call_all(const AllReduceSettings& settings, Client& client) {
  const DeviceContext context = virtual_context(client);
  int step = 0;
  for (const AllReduce& algorithm : usable_all_reduces(kAlgorithms, at::kCPU, context.group)) {
    for (const std::int64_t bytes : settings.sizes) {
      const at::Tensor tensor = at::ones({bytes / static_cast<std::int64_t>(sizeof(float))});
      client.go_to({.phase = Phase::kFinish, .step = step++});
      algorithm.run(tensor, context.group, ReduceOp::kSum);
      expect_sum_of_ones(algorithm.name, tensor, context.group->getSize());
    }
  }
}

Series time_of(std::int64_t ranks, const std::string& algorithm, std::int64_t bytes,
               std::int64_t ns) {
  return exact_time({{"world_size", ranks}, {"algorithm", algorithm}, {"bytes", bytes}},
                    in_seconds(ns));
}

void add_world(const AllReduceSettings& settings, const Evidence& evidence, Result& result) {
  const VirtualTime time(evidence, settings.network, simulated_cost);
  int step = 0;
  for (const std::string& algorithm : kAlgorithms) {
    for (const std::int64_t bytes : settings.sizes) {
      result.series.push_back(
          time_of(evidence.world.ranks, algorithm, bytes, time.step_ns(step++)));
    }
  }
}

// The same on the cluster, for tensors whose chunks are equal: else ranks send more than rank 0.
void add_cluster(const AllReduceSettings& settings, int ranks, Result& result) {
  const cluster::Link link{.alpha_ns = settings.network.alpha_ns,
                           .beta_ns_per_byte = settings.network.beta_ns_per_byte};
  for (const std::string& algorithm : kAlgorithms) {
    cluster::ClusterOptions options = cluster::bare_network(ranks, link);
    options.others_in_step = algorithm == kTree;  // its ranks do not do the same
    cluster::Cluster cluster(options);
    for (const std::int64_t bytes : settings.sizes) {
      const std::int64_t elements = bytes / static_cast<std::int64_t>(sizeof(float));
      if (elements % ranks == 0) {
        result.series.push_back(time_of(ranks, algorithm, bytes, cluster.time([&] {
          const at::Tensor tensor = at::empty({elements}, at::device(at::kMeta).dtype(at::kFloat));
          all_reduce_named(algorithm).run(tensor, cluster.group(), ReduceOp::kSum);
        })));
      }
    }
  }
}

// One world after the other: first those of forked ranks, since nobody may fork later.
int time_algorithms(AllReduceSettings settings) {
  Result result = header_of_worlds(
      settings.worlds,
      to_run(settings, "all_reduce_algorithms", kSimulatedNetwork, settings.device, 1),
      {{"alpha_ns", settings.network.alpha_ns},
       {"beta_ns_per_byte", settings.network.beta_ns_per_byte},
       {"dtype", "float32"},
       {"sizes", c10::Join(", ", settings.sizes)},
       {"worlds_on_cluster", c10::Join(", ", settings.on_cluster)}});
  for (const int world : settings.worlds) {
    settings.world_size = world;
    const auto body = [&](Client& client) {
      run_with_stage(settings, kRingStage, [&] { call_all(settings, client); });
    };
    const auto report = [&](const Evidence& evidence) { add_world(settings, evidence, result); };
    if (const int code = run_in_virtual_time(settings, body, report)) {
      return code;
    }
  }
  return run_on_cluster([&] {
    load_stage_library(stage_library(settings.implementation, kRingStage));
    for (const int world : settings.on_cluster) {
      add_cluster(settings, world, result);
    }
    save_result(settings, result);
  });
}

}  // namespace

AllReduceExperiment all_reduce_algorithms() {
  return {.name = "all_reduce_algorithms",
          .about =
              "Four algorithms on the simulated network, over message and world sizes: "
              "Thakur, Rabenseifner, Gropp, 2005",
          .presets = {.quick = "worlds of 2 to 8, 12 and 16 ranks, sizes of 1 KiB to 1 MiB; one "
                               "call each, since virtual time is the same in every run; then 32 to "
                               "4,096 ranks on the simulated cluster",
                      .full = "also 24 and 32 ranks, sizes of 256 B to 4 MiB",
                      .paper = "as full: virtual time is the same on any hardware, and nothing was "
                               "published"},
          .gpus = 0,
          .defaults = algorithms_defaults,
          .add_flags = add_algorithms_flags,
          .run = time_algorithms};
}

}  // namespace ddp
