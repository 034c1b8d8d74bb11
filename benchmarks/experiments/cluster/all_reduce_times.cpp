// All-reduces on the simulated cluster, one number of GPUs and one size after the other, as
// nccl-tests (all_reduce_perf) prints them: the time, the bytes over it (algbw), and those that each
// link moves if all-reduces go around a ring (busbw, algbw times 2 (p-1)/p); with what NCCL chooses.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "experiments/cluster/cluster.h"
#include "measuring/command_line.h"
#include "models/profiles/hardware.h"

namespace {

using namespace ddp;

constexpr const char* kTimesProgram = "all_reduce_times";

struct TimesSettings : BenchmarkOptions {
  ClusterFlags cluster{.gpus = {2, 4, 8},
                       .gpus_per_node = 8,
                       .gpu = "A100",
                       .link = "nvswitch3",
                       .between = "infiniband4x100"};
  std::vector<std::int64_t> mib = {1, 10, 100, 1024}, bytes = {};
};

void add_time(const cluster::Topology& topology, std::int64_t gpus, std::int64_t bytes,
              Result& result) {
  const double ns = static_cast<double>(cluster::all_reduce_ns(topology, bytes, gpus));
  const auto choice = cluster::nccl_choice(topology, bytes, gpus);
  const double algbw = gpus > 1 ? static_cast<double>(bytes) / ns : 0;
  const double busbw = algbw * 2 * static_cast<double>(gpus - 1) / static_cast<double>(gpus);
  std::printf("%8lld%14lld%12.1f%10.2f%10.2f  %s %s\n", static_cast<long long>(gpus),
              static_cast<long long>(bytes), 1e-3 * ns, algbw, busbw, choice.algorithm.c_str(),
              choice.protocol.c_str());
  result.series.push_back(exact_time({{"world_size", gpus},
                                      {"bytes", bytes},
                                      {"algorithm", choice.algorithm},
                                      {"protocol", choice.protocol}},
                                     1e-9 * ns));
}

void compute_times(const TimesSettings& settings) {
  PublishedHardware hardware;
  apply(settings.cluster, hardware);
  Result result = {
      .run = to_cluster_run(settings, kTimesProgram, settings.cluster.gpus.back()),
      .parameters = joined({{"link", settings.cluster.link},
                            {"link_source", source_of_link(settings.cluster.link)},
                            {"link_between", settings.cluster.between},
                            {"link_between_source", source_of_link(settings.cluster.between)}},
                           describe(hardware))};
  std::printf("%8s%14s%12s%10s%10s\n%8s%14s%12s%10s%10s\n", "GPUs", "size", "time", "algbw",
              "busbw", "", "(B)", "(us)", "(GB/s)", "(GB/s)");
  for (const std::int64_t gpus : settings.cluster.gpus) {
    for (const std::int64_t bytes : settings.bytes) {
      add_time(hardware.topology, gpus, bytes, result);
    }
  }
  save_result(settings, result);
}

std::function<void()> add_times(CLI::App& line, int argc, char** argv) {
  const auto settings = std::make_shared<TimesSettings>();
  add_study_flags(line, *settings, argc, argv);
  add_machine_flags(line, settings->cluster);
  add_number(line, "--mib", settings->mib, "Sizes, in 2^20 bytes", 0);
  line.add_option("--bytes", settings->bytes, "Sizes, in bytes, in place of --mib")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  return [settings] {
    if (settings->bytes.empty()) {
      std::ranges::transform(settings->mib, std::back_inserter(settings->bytes),
                             [](std::int64_t mib) { return mib << 20; });
    }
    compute_times(*settings);
  };
}

const bool kTimesRegistered = register_study(
    {kTimesProgram, "How long all-reduces take, as NCCL chooses their algorithm", add_times});

}  // namespace
