// Stage 05: how much bandwidth the student's ring makes of the link, over message sizes, beside its
// pipelined form, the given butterfly, and the all-reduce of the backend itself.
//
// The all-reduces take turns, call by call. A call begins on all ranks together; its time is that
// of the slowest rank. Bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md): what each rank
// must send at least, 2 (N-1)/N of its S bytes, by the time.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "command_line.h"
#include "ddp/benchmark.h"
#include "ddp/device_timer.h"
#include "support/all_reduces.h"
#include "support/turns.h"

namespace {

using namespace ddp;

const std::vector<std::string> kAll = {kRing, "pipelined ring", "butterfly", "all_reduce"};

// Small messages need more rounds, and large ones take longer.
struct Preset {
  int step;  // from one size to the next: times this
  Rounds small, large;
};
constexpr std::int64_t kSmallest = std::int64_t{4} << 10;
constexpr std::int64_t kLargest = std::int64_t{64} << 20;
constexpr std::int64_t kLarge = std::int64_t{4} << 20;

const std::map<std::string, Preset> kPresets = {
    {"quick", {4, {.measured = 200, .warmup = 20}, {.measured = 11, .warmup = 1}}},
    {"full", {2, {.measured = 1000, .warmup = 20}, {.measured = 100, .warmup = 5}}},
    {"paper", {2, {.measured = 1000, .warmup = 20}, {.measured = 100, .warmup = 5}}},
};

struct Settings : BenchmarkOptions {
  std::vector<std::int64_t> sizes;
  Rounds rounds;

  Rounds rounds_for(std::int64_t bytes) const {
    const Preset& of_preset = kPresets.at(preset);
    Rounds chosen = rounds;
    apply_preset(chosen, bytes < kLarge ? of_preset.small : of_preset.large);
    return chosen;
  }
};

// The seconds of one size: [rounds, all-reduces, 1], of the slowest rank.
at::Tensor measure(const Workplace& workplace, const std::vector<AllReduce>& all,
                   const Rounds& rounds, const at::Tensor& tensor) {
  const auto timer = make_device_timer(workplace.device);
  std::optional<Progress> none;
  const at::Tensor times = take_turns(
      rounds, all.size(),
      [&](std::size_t number) -> std::vector<double> {
        tensor.fill_(1);
        barrier(workplace.group);
        timer->start();
        all[number].run(tensor, workplace.group, ReduceOp::kSum);
        timer->stop();
        const double seconds = timer->seconds();
        TORCH_CHECK(tensor.eq(workplace.group->getSize()).all().item<bool>(), "the sum of ",
                    all[number].name, " is wrong for ", tensor.numel(),
                    " elements, so there is no point in measuring it; `make test STAGE=05` says "
                    "more");
        return {seconds};
      },
      none);
  return largest_of_ranks(times, workplace);
}

std::vector<Series> measure_sizes(const Settings& settings, const Workplace& workplace,
                                  const std::vector<AllReduce>& all) {
  keep_freed_memory();
  std::optional<Progress> progress;
  if (workplace.group->getRank() == 0) {
    progress.emplace("all_reduce_bandwidth, sizes", static_cast<int>(settings.sizes.size()));
  }
  const at::Tensor largest =
      at::empty({*std::ranges::max_element(settings.sizes) / std::int64_t{sizeof(float)}},
                at::device(workplace.device));
  std::vector<Series> series;
  for (const std::int64_t bytes : settings.sizes) {
    const at::Tensor tensor = largest.narrow(0, 0, bytes / std::int64_t{sizeof(float)});
    const at::Tensor times = measure(workplace, all, settings.rounds_for(bytes), tensor);
    for (std::size_t number = 0; number < all.size(); ++number) {
      series.push_back(
          series_of(times, number, 0, {{"variant", all[number].name}, {"bytes", bytes}}));
    }
    if (progress) {
      progress->advance();
    }
  }
  return series;
}

// nccl-tests' GB are 10^9 bytes.
double bus_bandwidth(std::int64_t bytes, double seconds, int ranks) {
  return 2e-9 * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds;
}

void print_table(const Result& result, const std::vector<AllReduce>& all) {
  std::printf("%-22s", "bus bandwidth [GB/s]");
  for (const AllReduce& one : all) {
    std::printf("%16s", one.name);
  }
  for (std::size_t i = 0; i < result.series.size(); ++i) {
    const Series& series = result.series[i];
    const auto bytes = std::get<std::int64_t>(series.labels[1].second);
    if (i % all.size() == 0) {
      std::printf("\n%12lld bytes    ", static_cast<long long>(bytes));
    }
    std::printf("%16.3f",
                bus_bandwidth(bytes, percentile(series.values, 50), result.run.world_size));
  }
  std::printf("\nfrom medians\n");
}

void run_rank(const RankContext& context, const Settings& settings) {
  const Workplace workplace = make_workplace(settings, context);
  const auto all = usable_all_reduces(kAll, workplace.device, workplace.group);
  const std::vector<Series> series = measure_sizes(settings, workplace, all);
  if (context.rank == 0) {
    const Result result = {.run = to_run(settings, "all_reduce_bandwidth", workplace.group),
                           .parameters = {{"dtype", "float32"}, {"rate_gbit", settings.rate_gbit}},
                           .series = series};
    save_result(settings, result);
    print_table(result, all);
  }
  save_trace(settings, context, workplace);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App app("Bus bandwidth of all-reduces over message sizes");
  Settings settings;
  add_flags(app, settings, argc, argv);
  add_flags(app, settings.rounds);
  app.add_option("--sizes", settings.sizes, "Bytes of a rank's tensor; default: 4 KiB to 64 MiB")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 32));
  CLI11_PARSE(app, argc, argv);
  for (std::int64_t bytes = kSmallest; app.count("--sizes") == 0 && bytes <= kLargest;
       bytes *= kPresets.at(settings.preset).step) {
    settings.sizes.push_back(bytes);
  }
  return run_benchmark(settings, kRingStage,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
