// Stage 05: the student's ring compared with the given butterfly, with as many elements as ranks,
// and with the backend's own all-reduce, with more: the two published tables, column for column, by
// the published procedure (first_calls.cpp), and, as the second, by warm calls (warm_calls.cpp).
//
// Published is the mean over 10 repeats of the maximum over ranks.
#include "experiments/ring_all_reduce/ring_all_reduce.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/resource.h>

#include <cstdio>
#include <map>

#include "ddp/meters/statistics.h"
#include "harness/command_line.h"
#include "harness/resumable_rows.h"

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

Result header(const RingOptions& settings, const ProcessGroupPtr& group) {
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

namespace {

using namespace ddp;

const std::vector<int> kWorlds = {1, 2, 4, 8, 16, 32};

using Presets = std::map<std::string, Repetitions>;

constexpr Repetitions kAsPublished = {.measured = 10, .warmup = 0};
const Presets kFirstCalls = {
    {"quick", {.measured = 3, .warmup = 0}}, {"full", kAsPublished}, {"paper", kAsPublished}};
constexpr Repetitions kMany = {.measured = 10'000, .warmup = 10};
const Presets kWarmCalls = {
    {"quick", {.measured = 10, .warmup = 2}}, {"full", kMany}, {"paper", kMany}};
const PresetsInWords kInWords = {
    .quick =
        "the published 6 rows beside the butterfly, of 1 to 32 ranks, and 5 beside the "
        "backend's all_reduce, of 1 to 16, with 3 repeats each; --procedure warm: 10 calls after 2",
    .full =
        "the same with the published 10 repeats; --procedure warm: 10,000 calls after 10, which "
        "nobody has published",
    .paper = "as full: what is published ran on the CPU, so no GPU is needed",
};

// What the flags ask for and the procedure cannot give; empty: nothing.
std::string mistake_in(const CLI::App& line, const RingOptions& settings) {
  if (settings.procedure == kWarmProcedure) {
    return "";
  }
  const std::string instead = "; give --procedure warm";
  if (settings.device != "cpu") {
    return "the published procedure is on the CPU, not --device " + settings.device + instead;
  }
  if (line.count("--warmup") > 0) {
    return "the published procedure measures first calls, without --warmup" + instead;
  }
  if (!settings.trace.empty()) {
    return "--trace draws ranks that stay, and the published procedure forks new ones for each "
           "call" +
           instead;
  }
  return "";
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line(
      "Ring against butterfly, and against the backend's own all-reduce, over world sizes");
  RingOptions settings;
  add_flags(line, settings, argc, argv);
  add_choice(line, "--procedure", settings.procedure,
             "published: new processes for each call; warm: calls one after the other",
             {kPublishedProcedure, kWarmProcedure});
  describe_worlds(line, kWorlds);
  add_flags(line, settings.repetitions);
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (const std::string mistake = mistake_in(line, settings); !mistake.empty()) {
    return refuse(line, mistake);
  }
  const bool warm = settings.procedure == kWarmProcedure;
  apply_preset(settings.repetitions, (warm ? kWarmCalls : kFirstCalls).at(settings.preset));
  settings.worlds = choose_worlds(line, settings, kWorlds);
  return warm ? measure_warm_calls(settings) : measure_first_calls(settings);
}
