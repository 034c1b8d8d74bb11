#include "experiments/ring_all_reduce/rows.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/resource.h>

#include <cstdio>
#include <map>

#include "ddp/meters/statistics.h"
#include "harness/worlds.h"

namespace ddp {
namespace {

// As published, by world size.
const std::map<std::int64_t, std::int64_t> kElementsBesideAllReduce = {
    {1, 1024}, {2, 2048}, {4, 4096}, {8, 16384}, {16, 131072}};

}  // namespace

std::vector<Pair> pairs_of(int world) {
  std::vector<Pair> pairs = {{"butterfly", world, world}};
  if (const auto found = kElementsBesideAllReduce.find(world);
      found != kElementsBesideAllReduce.end()) {
    pairs.push_back({"all_reduce", world, found->second});
  }
  return pairs;
}

PartialResult header(const RingOptions& settings, const ProcessGroupPtr& group) {
  return header_of_worlds(settings.worlds, to_run(settings, "ring_all_reduce", group),
                          {{"procedure", settings.procedure},
                           {"dtype", "float32"},
                           {"rate_gbit", settings.rate_gbit},
                           {"latency_us", settings.latency_us},
                           {"repetitions", std::int64_t{settings.repetitions.measured}},
                           {"warmup", std::int64_t{settings.repetitions.warmup}}});
}

at::Tensor draw_input(const Pair& pair, std::uint64_t seed, const at::Device& device) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn({pair.elements}, generator).to(device);
}

double peak_memory_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss);
}

void print_table(const Result& result, std::span<const Quantity> quantities) {
  std::printf("%-13s%7s%12s  %-12s", "beside", "ranks", "elements", "means of");
  for (const auto& [name, unit] : quantities) {
    std::printf("%20s", (std::string(name) + " [" + unit + "]").c_str());
  }
  for (std::size_t i = 0; i < result.series.size(); i += quantities.size()) {
    const Parameters& labels = result.series[i].labels;
    std::printf("\n%-13s%7lld%12lld  %-12s", std::get<std::string>(labels[0].second).c_str(),
                static_cast<long long>(std::get<std::int64_t>(labels[1].second)),
                static_cast<long long>(std::get<std::int64_t>(labels[2].second)),
                std::get<std::string>(labels[3].second).c_str());
    for (std::size_t quantity = 0; quantity < quantities.size(); ++quantity) {
      std::printf("%20.5g", summarize(result.series[i + quantity].values).mean);
    }
  }
  std::printf("\n");
}

}  // namespace ddp
