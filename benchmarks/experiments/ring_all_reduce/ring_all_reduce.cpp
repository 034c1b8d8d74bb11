// Stage 05: the student's ring compared with the given butterfly, with as many elements as ranks,
// and with the backend's own all-reduce, with more: the two published tables, column for column.
//
// The two are interleaved, call by call, on equal input: random float32, averaged over the ranks.
// Published is the mean over 10 repeats of the maximum over ranks; what a repeat contained besides
// the call, such as the start of processes, is not known. Here
//
//     time       seconds of the call alone, which all ranks begin together, after a warm-up
//     maxrss     getrusage()'s ru_maxrss, in KiB, when the call has ended: the peak memory of the
//                process, or, where Linux can reset that, the peak since the call began
//     allocated  the peak of the bytes that the call had allocated, beyond the tensor: of tensors
//                only, so not what the backend keeps for itself
//     diff       the sum of the squared errors of the result's elements, against the mean in
//                float64
//
// each of them the maximum over all ranks.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/peak_memory.h"
#include "harness/presets.h"
#include "harness/resumable_rows.h"
#include "harness/worlds.h"
#include "peers/all_reduces.h"

namespace {

using namespace ddp;

struct Quantity {
  const char* name;
  const char* unit;
};
constexpr std::array kQuantities = {Quantity{"time", "s"}, Quantity{"maxrss", "KiB"},
                                    Quantity{"allocated", "bytes"}, Quantity{"diff", "1"}};

// The ring and a peer, in one world.
struct Pair {
  std::string peer;
  std::int64_t world, elements;

  std::array<std::string, 2> variants() const { return {kRing, peer}; }
  Parameters labels() const {
    return {{"peer", peer}, {"world_size", world}, {"tensor_size", elements}};
  }
};

const std::vector<int> kWorlds = {1, 2, 4, 8, 16, 32};
const std::map<int, std::int64_t> kElementsBesideAllReduce = {
    {1, 1024}, {2, 2048}, {4, 4096}, {8, 16384}, {16, 131072}};

const std::map<std::string, Repetitions> kPresets = {
    {"quick", {.measured = 10, .warmup = 2}},
    {"full", {.measured = 10'000, .warmup = 10}},
    {"paper", {.measured = 10, .warmup = 2}},
};
const PresetsInWords kInWords = {
    .quick =
        "the published 6 rows beside the butterfly, of 1 to 32 ranks, and 5 beside the "
        "backend's all_reduce, of 1 to 16: the published 10 calls a row, after 2 to warm up",
    .full = "the same with 10,000 calls a row, after 10",
    .paper = "as quick, on 2 GPUs of the published model, which the ranks share",
};
const Hardware kPublished = {.gpus = 2, .model = "RTX A4000"};

struct Settings : BenchmarkOptions {
  std::vector<int> worlds;
  Repetitions repetitions;
};

std::vector<Pair> pairs_of(int world) {
  std::vector<Pair> pairs = {{"butterfly", world, world}};
  if (const auto found = kElementsBesideAllReduce.find(world);
      found != kElementsBesideAllReduce.end()) {
    pairs.push_back({"all_reduce", world, found->second});
  }
  return pairs;
}

// Resets the peak memory of the process to its present memory. Only Linux can do that, and not in
// every container; elsewhere the peak covers the whole run.
void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

double peak_memory_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss);
}

// One rank's measurements of one pair.
class Measurement {
 public:
  Measurement(const Settings& settings, const Pair& pair, const DeviceContext& device_context)
      : settings_(settings), pair_(pair), device_context_(device_context) {}

  // kQuantities of one call, except its tensor memory, which is that of a second call.
  std::vector<double> measure(const AllReduce& variant, int repetition) {
    const at::Tensor input = make_input(repetition);
    const at::Tensor tensor = input.clone();
    forget_peak_memory();
    barrier(device_context_.group);
    timer_->start();
    variant.run(tensor, device_context_.group, ReduceOp::kAverage);
    timer_->stop();
    const double seconds = timer_->seconds();
    const double kib = peak_memory_kib();
    const at::Tensor mean = input.to(at::kDouble);
    all_reduce(mean, device_context_.group, ReduceOp::kAverage);
    const double diff = (tensor - mean).square().sum().item<double>();
    const std::int64_t allocated = peak_bytes(device_context_.device, [&] {
      variant.run(input, device_context_.group, ReduceOp::kAverage);
    });
    return {seconds, kib, static_cast<double>(allocated), diff};
  }

 private:
  at::Tensor make_input(int repetition) const {
    const int ranks = device_context_.group->getSize();
    at::Generator generator = at::detail::createCPUGenerator(settings_.seed + repetition * ranks +
                                                             device_context_.group->getRank());
    return at::randn({pair_.elements}, generator).to(device_context_.device);
  }

  const Settings& settings_;
  const Pair& pair_;
  const DeviceContext& device_context_;
  std::unique_ptr<DeviceTimer> timer_ = make_device_timer(device_context_.device);
};

// Both variants' kQuantities.
std::vector<Series> measure_pair(const Settings& settings, const Pair& pair,
                                 const DeviceContext& device_context,
                                 std::optional<Progress>& progress) {
  const auto [ring, peer] = pair.variants();
  const auto variants =
      usable_all_reduces({ring, peer}, device_context.device, device_context.group);
  Measurement measurement(settings, pair, device_context);
  int calls = 0;
  const at::Tensor own = measure_interleaved(
      settings.repetitions, variants.size(),
      [&](std::size_t variant) {
        return measurement.measure(variants[variant], calls++ / static_cast<int>(variants.size()));
      },
      progress);
  const at::Tensor values = largest_of_ranks(own, device_context);
  std::vector<Series> series;
  series.reserve(variants.size() * kQuantities.size());
  for (std::size_t variant = 0; variant < variants.size(); ++variant) {
    for (std::size_t quantity = 0; quantity < kQuantities.size(); ++quantity) {
      const auto [name, unit] = kQuantities[quantity];
      series.push_back(series_of(values, variant, quantity,
                                 {{"variant", variants[variant].name}, {"quantity", name}}));
      series.back().unit = unit;
    }
  }
  return series;
}

PartialResult header(const Settings& settings, const ProcessGroupPtr& group) {
  return header_of_worlds(settings.worlds, to_run(settings, "ring_all_reduce", group),
                          {{"dtype", "float32"},
                           {"rate_gbit", settings.rate_gbit},
                           {"repetitions", std::int64_t{settings.repetitions.measured}},
                           {"warmup", std::int64_t{settings.repetitions.warmup}}});
}

void print_table(const Result& result) {
  std::printf("%-13s%7s%12s  %-12s%12s%14s%18s%12s\n", "beside", "ranks", "elements", "means of",
              "time [s]", "maxrss [KiB]", "allocated [bytes]", "diff");
  for (std::size_t i = 0; i < result.series.size(); i += kQuantities.size()) {
    const Parameters& labels = result.series[i].labels;
    const auto mean = [&](std::size_t quantity) {
      return summarize(result.series[i + quantity].values).mean;
    };
    std::printf("%-13s%7lld%12lld  %-12s%12.6f%14.1f%18.0f%12.4e\n",
                std::get<std::string>(labels[0].second).c_str(),
                static_cast<long long>(std::get<std::int64_t>(labels[1].second)),
                static_cast<long long>(std::get<std::int64_t>(labels[2].second)),
                std::get<std::string>(labels[3].second).c_str(), mean(0), mean(1), mean(2),
                mean(3));
  }
}

void measure_world(const RankContext& context, const Settings& settings,
                   const DeviceContext& device_context, ResumableRows& rows) {
  const std::vector<Pair> pairs = pairs_of(context.world_size);
  const int repetitions = settings.repetitions.warmup + settings.repetitions.measured;
  std::optional<Progress> progress;
  if (context.rank == 0) {
    progress.emplace(
        "ring_all_reduce, repetitions of " + std::to_string(context.world_size) + " ranks",
        static_cast<int>(pairs.size()) * repetitions);
  }
  for (const Pair& pair : pairs) {
    if (!rows.has(pair.labels())) {
      rows.add(pair.labels(), measure_pair(settings, pair, device_context, progress));
    } else if (progress) {
      progress->skip(repetitions);
    }
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  ResumableRows rows(settings, header(settings, device_context.group), device_context);
  measure_world(context, settings, device_context, rows);
  if (context.world_size == settings.worlds.back()) {
    const Result result = rows.finish();
    if (context.rank == 0) {
      print_table(result);
    }
  }
  save_trace(settings, context, device_context);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CommandLine line(
      "Ring against butterfly, and against the backend's own all-reduce, over world sizes");
  Settings settings;
  add_flags(line, settings, argc, argv);
  describe_worlds(line, kWorlds);
  add_flags(line, settings.repetitions);
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = line.parse(argc, argv)) {
    return *code;
  }
  if (const int code = check_preset(line, settings, kPublished)) {
    return code;
  }
  apply_preset(settings.repetitions, kPresets.at(settings.preset));
  settings.worlds = choose_worlds(line, settings, kWorlds);
  return run_benchmark_in_worlds(settings, settings.worlds, kRingStage, run_rank);
}
