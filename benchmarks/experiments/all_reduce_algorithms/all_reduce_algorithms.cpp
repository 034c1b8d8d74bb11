// Stage 05 on the simulated network: the student's ring compared with three other all-reduces, for
// several message sizes and world sizes. The code of each really runs and data really moves,
// through shared memory; time is that of the alpha-beta model, the same in every run.
//
// A call begins on all ranks together; its time is that of the slowest rank. Sizes are in bytes of
// float32 per rank.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <cstdio>
#include <map>

#include "ddp/backends/shared_memory_backend.h"
#include "ddp/referee/checked_backend.h"
#include "ddp/simulation/simulated_network.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/presets.h"
#include "harness/resumable_rows.h"
#include "harness/worlds.h"
#include "peers/all_reduces.h"

namespace {

using namespace ddp;

const std::vector<std::string> kAlgorithms = {kRing, "butterfly", "recursive doubling", "tree"};

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
        "virtual time is the same in every run",
    .full = "also 24 and 32 ranks, sizes of 256 B to 4 MiB",
    .paper = "as full: virtual time is the same on any hardware, and nothing was published",
};

struct Settings : BenchmarkOptions {
  NetworkModel network{.alpha_ns = 10'000, .beta_ns_per_byte = 1.0};
  std::vector<int> worlds;
  std::vector<std::int64_t> sizes;
};

// A process group in virtual time.
struct Place {
  c10::intrusive_ptr<SimulatedNetwork> network;
  DeviceContext device_context;
};

Place make_place(const Settings& settings, const RankContext& context) {
  TORCH_CHECK_VALUE(context.board != nullptr,
                    "the simulated network needs ranks that share memory: start this without "
                    "torchrun, mpirun or srun");
  TORCH_CHECK_VALUE(settings.device == "cpu",
                    "the simulated network moves CPU tensors only; leave out --device cuda");
  TORCH_CHECK_VALUE(settings.trace.empty(),
                    "this program draws no trace, since each call would be one of its own; leave "
                    "out --trace, or see the program timeline");
  BackendPtr backend =
      c10::make_intrusive<SharedMemoryBackend>(*context.exchange, context.rank, context.world_size);
  // It completes messages in the background, which shared memory does not.
  backend =
      c10::make_intrusive<CheckedBackend>(backend, std::make_shared<TensorNames>(), *context.board);
  auto network = c10::make_intrusive<SimulatedNetwork>(backend, std::make_shared<VirtualClock>(),
                                                       settings.network, *context.board);
  ProcessGroupPtr group = make_process_group(network, store_for_next_backend(context));
  return {std::move(network), {.device = at::kCPU, .group = std::move(group)}};
}

// Seconds of one call, the same on all ranks.
double measure(const Place& place, const AllReduce& algorithm, std::int64_t bytes) {
  const ProcessGroupPtr& group = place.device_context.group;
  const int ranks = group->getSize();
  const at::Tensor tensor = at::ones({bytes / static_cast<std::int64_t>(sizeof(float))});
  const std::int64_t begin = place.network->start_step();
  algorithm.run(tensor, group, ReduceOp::kSum);
  const std::int64_t end = place.network->start_step();
  TORCH_CHECK(tensor.eq(ranks).all().item<bool>(), "the sum of ", algorithm.name, " over ", ranks,
              " ranks is wrong for ", tensor.numel(), " elements; `make test STAGE=05` says more");
  return 1e-9 * static_cast<double>(end - begin);
}

// One number for each algorithm and size.
std::vector<Series> measure_world(const Settings& settings, const Place& place) {
  const auto algorithms = usable_all_reduces(kAlgorithms, at::kCPU, place.device_context.group);
  std::vector<Series> series;
  series.reserve(algorithms.size() * settings.sizes.size());
  for (const AllReduce& algorithm : algorithms) {
    for (const std::int64_t bytes : settings.sizes) {
      series.push_back({.labels = {{"algorithm", algorithm.name}, {"bytes", bytes}},
                        .unit = "s",
                        .values = {measure(place, algorithm, bytes)}});
    }
  }
  return series;
}

PartialResult header(const Settings& settings, const ProcessGroupPtr& group) {
  return header_of_worlds(settings.worlds, to_run(settings, "all_reduce_algorithms", group),
                          {{"alpha_ns", settings.network.alpha_ns},
                           {"beta_ns_per_byte", settings.network.beta_ns_per_byte},
                           {"dtype", "float32"},
                           {"sizes", c10::Join(", ", settings.sizes)}});
}

// The fastest at the given positions of world and size; the first if several are equally fast.
const std::string& fastest(const Settings& settings, const Result& result, std::size_t world,
                           std::size_t size) {
  const std::size_t sizes = settings.sizes.size();
  const auto seconds = [&](std::size_t algorithm) {
    return result.series[(world * kAlgorithms.size() + algorithm) * sizes + size].values[0];
  };
  std::size_t best = 0;
  for (std::size_t algorithm = 1; algorithm < kAlgorithms.size(); ++algorithm) {
    best = seconds(algorithm) < seconds(best) ? algorithm : best;
  }
  return kAlgorithms[best];
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

void run_rank(const RankContext& context, const Settings& settings) {
  const Place place = make_place(settings, context);
  ResumableRows rows(settings, header(settings, place.device_context.group), place.device_context);
  const Parameters labels = {{"world_size", std::int64_t{context.world_size}}};
  if (!rows.has(labels)) {
    rows.add(labels, measure_world(settings, place));
  }
  if (context.world_size == settings.worlds.back()) {
    const Result result = rows.finish();
    if (context.rank == 0) {
      print_fastest(settings, result);
    }
  }
  barrier(place.device_context.group);  // no rank exits while another still uses its messages
}

void choose_sizes(Settings& settings, const Grid& grid) {
  if (settings.sizes.empty()) {
    for (std::int64_t bytes = grid.smallest; bytes <= grid.largest; bytes *= 2) {
      settings.sizes.push_back(bytes);
    }
  }
}

void add_flags(CommandLine& line, Settings& settings) {
  const auto number = [&](const char* flag, auto& value, const char* what) {
    line.add(flag, value, what).non_negative().show_default();
  };
  number("--alpha-ns", settings.network.alpha_ns, "Latency of a message");
  number("--beta-ns-per-byte", settings.network.beta_ns_per_byte, "Time of a byte");
  line.add("--sizes", settings.sizes, "Bytes of a rank's tensor; default: the preset's")
      .in_range(std::int64_t{4}, std::int64_t{64} << 20);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CommandLine line("All-reduces on the simulated network, over message and world sizes");
  Settings settings;
  ddp::add_flags(line, settings, argc, argv);
  describe_worlds(line, kQuick.worlds);
  add_flags(line, settings);
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = line.parse(argc, argv)) {
    return *code;
  }
  const Grid& grid = kPresets.at(settings.preset);
  settings.worlds = choose_worlds(line, settings, grid.worlds);
  choose_sizes(settings, grid);
  return run_benchmark_in_worlds(settings, settings.worlds, kRingStage, run_rank);
}
