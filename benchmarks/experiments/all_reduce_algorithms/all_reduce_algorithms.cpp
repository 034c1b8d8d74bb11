// Stage 05 on the simulated network: the student's ring compared with three other all-reduces, for
// several message sizes and world sizes. The code of each really runs and data really moves;
// time is that of the alpha-beta model, the same in every run. Worlds that are too large for this
// machine follow on the simulated cluster, where one rank stands for all; there data does not move.
//
// A call begins on all ranks together; its time is that of the slowest rank. Sizes are in bytes of
// float32 per rank.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "baselines/all_reduces.h"
#include "ddp/cluster/cluster.h"
#include "ddp/ranks/stage_library.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/on_cluster.h"
#include "measuring/resumable_rows.h"
#include "measuring/virtual_run.h"

namespace {

using namespace ddp;

constexpr const char* kTree = "tree";
const std::vector<std::string> kAlgorithms = {kRing, "butterfly", "recursive doubling", kTree};

struct Grid {
  std::vector<int> worlds;
  std::int64_t smallest, largest;  // bytes; each size is twice the previous one
};
const Grid kQuick = {{2, 3, 4, 5, 6, 7, 8, 12, 16}, 1 << 10, 1 << 20};
const Grid kFull = {{2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32}, 1 << 8, 4 << 20};
const std::map<std::string, Grid> kPresets = {{"quick", kQuick}, {"full", kFull}, {"paper", kFull}};
const PresetsInWords kInWords = {
    .quick =
        "worlds of 2 to 8, 12 and 16 ranks, sizes of 1 KiB to 1 MiB; one call each, since "
        "virtual time is the same in every run; then 32 to 4,096 ranks on the simulated cluster",
    .full = "also 24 and 32 ranks, sizes of 256 B to 4 MiB",
    .paper = "as full: virtual time is the same on any hardware, and nothing was published",
};

// Powers of two: otherwise ranks without partners do other things than those with.
const std::vector<int> kOnCluster = {32, 64, 128, 256, 512, 1024, 2048, 4096};

struct Settings : BenchmarkOptions {
  NetworkModel network{.alpha_ns = 10'000, .beta_ns_per_byte = 1.0};
  std::vector<int> worlds;
  std::vector<int> on_cluster;
  std::vector<std::int64_t> sizes;
};

// One call of each algorithm with each size, one step of the body each.
void run_rank(const Settings& settings, Client& client) {
  const DeviceContext context = virtual_context(client);
  const int ranks = context.group->getSize();
  int step = 0;
  for (const AllReduce& algorithm : usable_all_reduces(kAlgorithms, at::kCPU, context.group)) {
    for (const std::int64_t bytes : settings.sizes) {
      const at::Tensor tensor = at::ones({bytes / static_cast<std::int64_t>(sizeof(float))});
      client.go_to({.phase = Phase::kFinish, .step = step++});
      algorithm.run(tensor, context.group, ReduceOp::kSum);
      TORCH_CHECK(tensor.eq(ranks).all().item<bool>(), "the sum of ", algorithm.name, " over ",
                  ranks, " ranks is wrong for ", tensor.numel(),
                  " elements; `make test STAGE=05` says more");
    }
  }
}

Series series_of(int ranks, const std::string& algorithm, std::int64_t bytes, std::int64_t ns) {
  return exact_time(
      {{"world_size", std::int64_t{ranks}}, {"algorithm", algorithm}, {"bytes", bytes}},
      in_seconds(ns));
}

// One number for each algorithm and size.
std::vector<Series> series_of_world(const Settings& settings, const Evidence& evidence) {
  const VirtualTime time(evidence, settings.network, simulated_cost);
  std::vector<Series> series;
  int step = 0;
  for (const std::string& algorithm : kAlgorithms) {
    for (const std::int64_t bytes : settings.sizes) {
      series.push_back(series_of(evidence.world.ranks, algorithm, bytes, time.step_ns(step++)));
    }
  }
  return series;
}

// The same on the cluster, for tensors whose chunks are equal: else ranks send more than rank 0.
std::vector<Series> series_on_cluster(const Settings& settings, int ranks) {
  const cluster::Link link{.alpha_ns = settings.network.alpha_ns,
                           .beta_ns_per_byte = settings.network.beta_ns_per_byte};
  std::vector<Series> series;
  for (const std::string& algorithm : kAlgorithms) {
    cluster::ClusterOptions options = cluster::bare_network(ranks, link);
    options.others_in_step = algorithm == kTree;  // its ranks do not do the same
    cluster::Cluster cluster(options);
    for (const std::int64_t bytes : settings.sizes) {
      const std::int64_t elements = bytes / static_cast<std::int64_t>(sizeof(float));
      if (elements % ranks == 0) {
        series.push_back(series_of(ranks, algorithm, bytes, cluster.time([&] {
          const at::Tensor tensor = at::empty({elements}, at::device(at::kMeta).dtype(at::kFloat));
          all_reduce_named(algorithm).run(tensor, cluster.group(), ReduceOp::kSum);
        })));
      }
    }
  }
  return series;
}

Result header(const Settings& settings) {
  return header_of_worlds(settings.worlds,
                          to_run(settings, "all_reduce_algorithms", kSimulatedNetwork,
                                 settings.device, settings.world_size),
                          {{"alpha_ns", settings.network.alpha_ns},
                           {"beta_ns_per_byte", settings.network.beta_ns_per_byte},
                           {"dtype", "float32"},
                           {"sizes", c10::Join(", ", settings.sizes)},
                           {"worlds_on_cluster", c10::Join(", ", settings.on_cluster)}});
}

// The algorithm that is fastest at the given positions of world and size; the first if several are.
const std::string& fastest(const Settings& settings, const Result& result, std::size_t world,
                           std::size_t size) {
  const std::size_t sizes = settings.sizes.size();
  const auto seconds = [&](const std::string& algorithm) {
    const std::size_t position = &algorithm - kAlgorithms.data();
    return result.series[(world * kAlgorithms.size() + position) * sizes + size].values[0];
  };
  return *std::ranges::min_element(kAlgorithms, {}, seconds);
}

void print_fastest(const Settings& settings, const Result& result) {
  std::printf("The fastest in virtual time, from which size in bytes on:\n");
  for (std::size_t world = 0; world < settings.worlds.size(); ++world) {
    std::printf("%2d ranks:", settings.worlds[world]);
    std::string last;
    for (std::size_t size = 0; size < settings.sizes.size(); ++size) {
      const std::string& name = fastest(settings, result, world, size);
      if (name != last) {
        std::printf("%s %s from %lld", last.empty() ? "" : ",", name.c_str(),
                    static_cast<long long>(settings.sizes[size]));
        last = name;
      }
    }
    std::printf("\n");
  }
}

// One world after the other: first those of forked ranks, since nobody may fork later.
int run_worlds(Settings settings) {
  Result result = header(settings);
  const auto report = [&](const Evidence& evidence) {
    std::ranges::move(series_of_world(settings, evidence), std::back_inserter(result.series));
  };
  for (const int world : settings.worlds) {
    settings.world_size = world;
    const auto body = [&](Client& client) {
      run_with_stage(settings, kRingStage, [&] { run_rank(settings, client); });
    };
    if (const int code = run_in_virtual_time(settings, body, report)) {
      return code;
    }
  }
  return run_on_cluster([&] {
    load_stage_library(stage_library(settings.implementation, kRingStage));
    for (const int world : settings.on_cluster) {
      std::ranges::move(series_on_cluster(settings, world), std::back_inserter(result.series));
    }
    save_result(settings, result);
    print_fastest(settings, result);
  });
}

void add_flags(CLI::App& line, Settings& settings) {
  const auto number = [&](const char* flag, auto& value, const char* what) {
    line.add_option(flag, value, what)->check(CLI::NonNegativeNumber)->capture_default_str();
  };
  number("--alpha-ns", settings.network.alpha_ns, "Latency of a message");
  number("--beta-ns-per-byte", settings.network.beta_ns_per_byte, "Time of a byte");
  line.add_option("--sizes", settings.sizes, "Bytes of a rank's tensor; default: the preset's")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{64} << 20));
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("All-reduces on the simulated network, over message and world sizes");
  Settings settings;
  ddp::add_flags(line, settings, argc, argv);
  describe_worlds(line, kQuick.worlds);
  add_flags(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (!settings.trace.empty()) {
    std::fputs(
        "this program draws no trace, since each call would be one of its own; leave out --trace, "
        "or see the program timeline\n",
        stderr);
    return 1;
  }
  const Grid& grid = kPresets.at(settings.preset);
  settings.worlds = choose_worlds(line, settings, grid.worlds);
  if (line.count("--world-size") == 0) {
    settings.on_cluster = kOnCluster;
  }
  if (settings.sizes.empty()) {
    for (std::int64_t bytes = grid.smallest; bytes <= grid.largest; bytes *= 2) {
      settings.sizes.push_back(bytes);
    }
  }
  return run_worlds(std::move(settings));
}
