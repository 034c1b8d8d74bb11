// Stage 05: how well all-reduces use the link, for several message sizes and world sizes: the
// student's ring, the given butterfly, and the backend's own all-reduce.
//
// In each row (one size in one world) the all-reduces are interleaved, call by call. A call begins
// on all ranks together; its time is that of the slowest rank; the sum is checked after each.
// Figures and tables convert the times to bandwidths as nccl-tests does (doc/PERFORMANCE.md): for S
// bytes in t seconds among N ranks
//
//     algorithm bandwidth  S / t
//     bus bandwidth        S / t * 2 (N-1)/N   the least that each rank must send, per second
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "baselines/all_reduces.h"
#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"

namespace {

using namespace ddp;

const std::vector<std::string> kAll = {kRing, "butterfly", "all_reduce"};
const std::vector<int> kWorlds = {2, 4, 6};
constexpr std::int64_t kSmallest = std::int64_t{1} << 10;
constexpr std::int64_t kLargest = std::int64_t{128} << 20;

// How often a row is measured: until its tensors on all ranks add up to `bytes`, within limits.
// More ranks share the same cores, so they measure less often, too.
struct Plan {
  std::int64_t bytes = 0;
  int least = 0;
  int most = 0;  // with two ranks
  int warmup = 0;

  Repetitions repetitions(std::int64_t tensor, int world) const {
    const std::int64_t repetitions =
        std::min<std::int64_t>(bytes / (tensor * world), 2 * most / world);
    return {.measured = static_cast<int>(std::clamp<std::int64_t>(repetitions, least, most)),
            .warmup = warmup};
  }
};

struct Preset {
  int step;  // factor between sizes, except before the last one
  Plan plan;

  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> all;
    for (std::int64_t bytes = kSmallest; step * bytes <= kLargest; bytes *= step) {
      all.push_back(bytes);
    }
    all.push_back(kLargest);
    return all;
  }
};
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
const Preset kFull = {2, {.bytes = 16'384 * kMiB, .least = 20, .most = 1000, .warmup = 5}};
const std::map<std::string, Preset> kPresets = {
    {"quick", {4, {.bytes = 64 * kMiB, .least = 2, .most = 40, .warmup = 1}}},
    {"full", kFull},
    {"paper", kFull},
};
const PresetsInWords kInWords = {
    .quick =
        "worlds of 2, 4 and 6 ranks, sizes of 1 KiB to 16 MiB, each 4 times the one before, "
        "and 128 MiB; 40 calls of small tensors by 2 ranks, and down to 2 of larger ones or by "
        "more ranks, after 1 to warm up",
    .full = "each size to 128 MiB twice the one before, 1000 to 20 calls, after 5",
    .paper =
        "as full with a GPU for each rank: 6 GPUs of any model. Nothing was published of this "
        "experiment; the preset is named as elsewhere",
};
const Hardware kPublished = {.gpus = 6};

struct Settings : BenchmarkOptions {
  std::vector<int> worlds;
  std::vector<std::int64_t> sizes;
  Plan plan;
};

// The seconds of one size: [repetitions, all-reduces, 1], of the slowest rank.
at::Tensor measure(const DeviceContext& device_context, const std::vector<AllReduce>& all,
                   const Repetitions& repetitions, const at::Tensor& tensor) {
  const auto timer = make_device_timer(device_context.device);
  const at::Tensor times =
      measure_interleaved(repetitions, all.size(), [&](std::size_t number) -> std::vector<double> {
        tensor.fill_(1);
        const double seconds = seconds_together(*timer, device_context.group, [&] {
          all[number].run(tensor, device_context.group, ReduceOp::kSum);
        });
        const auto [least, most] = at::aminmax(tensor);
        const double ranks = device_context.group->getSize();
        TORCH_CHECK(least.item<double>() == ranks && most.item<double>() == ranks, "the sum of ",
                    all[number].name, " is wrong for ", tensor.numel(),
                    " elements, so there is no point in measuring it; `make test STAGE=05` says "
                    "more");
        return {seconds};
      });
  return largest_of_ranks(times, device_context);
}

// A series for each of `all`.
std::vector<Series> to_series(const at::Tensor& times, const std::vector<AllReduce>& all) {
  std::vector<Series> series;
  for (std::size_t number = 0; number < all.size(); ++number) {
    series.push_back(series_of(times, number, 0, {{"variant", all[number].name}}));
  }
  return series;
}

void measure_world(const Settings& settings, const RankContext& context,
                   const DeviceContext& device_context, ResumableRows& rows) {
  keep_freed_memory();
  const std::vector<AllReduce> all =
      usable_all_reduces(kAll, device_context.device, device_context.group);
  const int world = device_context.group->getSize();
  const auto before = std::ranges::find(settings.worlds, world) - settings.worlds.begin();
  const auto sizes = static_cast<std::ptrdiff_t>(settings.sizes.size());
  const auto total = sizes * static_cast<std::ptrdiff_t>(settings.worlds.size());
  Progress progress("collectives, sizes in worlds", static_cast<int>(total), context.rank);
  progress.skip(static_cast<int>(sizes * before));
  const at::Tensor largest =
      at::empty({std::ranges::max(settings.sizes) / std::int64_t{sizeof(float)}},
                at::device(device_context.device));
  for (const std::int64_t bytes : settings.sizes) {
    const Parameters labels = {{"world_size", std::int64_t{world}}, {"bytes", bytes}};
    rows.measure(labels, progress, 1, [&] {
      const at::Tensor tensor = largest.narrow(0, 0, bytes / std::int64_t{sizeof(float)});
      const Repetitions repetitions = settings.plan.repetitions(bytes, world);
      progress.advance();
      return to_series(measure(device_context, all, repetitions, tensor), all);
    });
  }
}

Result header(const Settings& settings, const ProcessGroupPtr& group) {
  return header_of_worlds(settings.worlds, to_run(settings, "collectives", group),
                          {{"dtype", "float32"},
                           {"redop", "sum"},
                           {"rate_gbit", settings.rate_gbit},
                           {"latency_us", settings.latency_us},
                           {"sizes", c10::Join(", ", settings.sizes)},
                           {"least_repetitions", std::int64_t{settings.plan.least}},
                           {"most_repetitions", std::int64_t{settings.plan.most}},
                           {"warmup", std::int64_t{settings.plan.warmup}}});
}

// In nccl-tests a GB is 10^9 bytes.
double bus_bandwidth(std::int64_t bytes, double seconds, std::int64_t ranks) {
  return 2e-9 * static_cast<double>((ranks - 1) * bytes) / static_cast<double>(ranks) / seconds;
}

void print_table(const Result& result) {
  std::printf("%5s%14s  %-16s%16s%22s\n", "ranks", "bytes", "medians of", "time [us]",
              "bus bandwidth [GB/s]");
  for (const Series& series : result.series) {
    const auto ranks = std::get<std::int64_t>(series.labels[0].second);
    const auto bytes = std::get<std::int64_t>(series.labels[1].second);
    const double seconds = percentile(series.values, 50);
    std::printf("%5ld%14ld  %-16s%16.1f%22.3f\n", ranks, bytes,
                std::get<std::string>(series.labels[2].second).c_str(), 1e6 * seconds,
                bus_bandwidth(bytes, seconds, ranks));
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  ResumableRows rows(settings, header(settings, device_context.group), device_context);
  measure_world(settings, context, device_context, rows);
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
  CLI::App line("Time and bandwidth of all-reduces over message and world sizes");
  Settings settings;
  const Preset& preset = chosen(kPresets, argc, argv);
  settings.plan = preset.plan;
  add_flags(line, settings, argc, argv);
  describe_worlds(line, kWorlds);
  int repetitions = 0;
  add_number(line, "--repetitions", repetitions, "How often each is measured; 0: as often as fits",
             0);
  add_number(line, "--warmup", settings.plan.warmup, "Repetitions before them", 0);
  line.add_option("--sizes", settings.sizes, "Bytes of a rank's tensor; default: the preset's")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 32));
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv, settings, kPublished)) {
    return *code;
  }
  if (settings.sizes.empty()) {
    settings.sizes = preset.sizes();
  }
  if (repetitions > 0) {
    settings.plan.least = settings.plan.most = repetitions;
  }
  settings.worlds = choose_worlds(line, settings, kWorlds);
  return run_benchmark_in_worlds(settings, settings.worlds, kRingStage, run_rank);
}
