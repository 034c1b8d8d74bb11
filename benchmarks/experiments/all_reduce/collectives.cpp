// How well all-reduces use the link, for several message sizes and world sizes: the student's ring,
// the given butterfly, and the backend's own all-reduce.
//
// Source: the measure is nccl-tests' (doc/PERFORMANCE.md); of this experiment nothing was published.
// Figures and tables convert the times to bandwidths: for S bytes in t seconds among N ranks
//
//     algorithm bandwidth  S / t
//     bus bandwidth        S / t * 2 (N-1)/N   the least that each rank must send, per second
//
// In each row (one size in one world) the all-reduces are interleaved, call by call. A call begins
// on all ranks together; its time is that of the slowest rank; the sum is checked after each.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "ddp/meters/device_timer.h"
#include "experiments/all_reduce/all_reduce.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"

namespace ddp {
namespace {

const std::vector<std::string> kCompared = {kRing, "butterfly", "all_reduce"};
constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20;

AllReduceSettings collectives_defaults(const std::string& preset) {
  AllReduceSettings settings;
  settings.worlds = {2, 4, 6};
  if (preset == "full" || preset == "paper") {
    settings.sizes = sizes_between(kKiB, 128 * kMiB, 2);
    settings.bytes = 16'384 * kMiB;
    settings.least = 20, settings.most = 1000, settings.warmup = 5;
  } else {
    settings.sizes = sizes_between(kKiB, 16 * kMiB, 4);
    settings.sizes.push_back(128 * kMiB);
    settings.bytes = 64 * kMiB;
    settings.least = 2, settings.most = 40, settings.warmup = 1;
  }
  return settings;
}

void add_collectives_flags(CLI::App& line, AllReduceSettings& settings) {
  add_number(line, "--repetitions", settings.repetitions,
             "How often each is measured; 0: as often as fits", 0);
  add_number(line, "--warmup", settings.warmup, "Repetitions before them", 0);
  line.add_option("--sizes", settings.sizes, "Bytes of a rank's tensor; default: the preset's")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 32));
  add_resume_flag(line, settings);
}

// A row is measured until its tensors on all ranks add up to settings.bytes, within limits. More
// ranks share the same cores, so they measure less often, too.
Repetitions repetitions_of(const AllReduceSettings& settings, std::int64_t tensor) {
  const std::int64_t repetitions = std::min<std::int64_t>(
      settings.bytes / (tensor * settings.world_size), 2 * settings.most / settings.world_size);
  return {.measured = static_cast<int>(
              std::clamp<std::int64_t>(repetitions, settings.least, settings.most)),
          .warmup = settings.warmup};
}

// The seconds of one size: [repetitions, all-reduces, 1], of the slowest rank.
at::Tensor measure_size(const DeviceContext& ranks, const std::vector<AllReduce>& all,
                        const Repetitions& repetitions, const at::Tensor& tensor) {
  const auto timer = make_device_timer(ranks.device);
  const at::Tensor times =
      measure_interleaved(repetitions, all.size(), [&](std::size_t number) -> std::vector<double> {
        tensor.fill_(1);
        const double seconds = seconds_together(
            *timer, ranks.group, [&] { all[number].run(tensor, ranks.group, ReduceOp::kSum); });
        expect_sum_of_ones(all[number].name, tensor, ranks.group->getSize());
        return {seconds};
      });
  return largest_of_ranks(times, ranks);
}

Result collectives_header(const AllReduceSettings& settings, const ProcessGroupPtr& group) {
  return header_of_worlds(settings.worlds, to_run(settings, "collectives", group),
                          {{"dtype", "float32"},
                           {"redop", "sum"},
                           {"rate_gbit", settings.rate_gbit},
                           {"latency_us", settings.latency_us},
                           {"sizes", c10::Join(", ", settings.sizes)},
                           {"least_repetitions", settings.least},
                           {"most_repetitions", settings.most},
                           {"warmup", settings.warmup}});
}

void measure_world(const RankContext& context, const AllReduceSettings& settings) {
  const DeviceContext ranks = make_device_context(settings, context);
  ResumableRows rows(settings, collectives_header(settings, ranks.group), ranks);
  keep_freed_memory();
  const std::vector<AllReduce> all = usable_all_reduces(kCompared, ranks.device, ranks.group);
  const auto before = std::ranges::find(settings.worlds, context.world_size);
  const auto sizes = static_cast<int>(settings.sizes.size());
  Progress progress("collectives, sizes in worlds",
                    sizes * static_cast<int>(settings.worlds.size()), context.rank);
  progress.skip(sizes * static_cast<int>(before - settings.worlds.begin()));
  const at::Tensor largest = at::empty(
      {std::ranges::max(settings.sizes) / std::int64_t{sizeof(float)}}, at::device(ranks.device));
  for (const std::int64_t bytes : settings.sizes) {
    rows.measure({{"world_size", context.world_size}, {"bytes", bytes}}, progress, 1, [&] {
      const at::Tensor times =
          measure_size(ranks, all, repetitions_of(settings, bytes),
                       largest.narrow(0, 0, bytes / std::int64_t{sizeof(float)}));
      progress.advance();
      std::vector<Series> series;
      for (std::size_t number = 0; number < all.size(); ++number) {
        series.push_back(series_of(times, number, 0, {{"variant", all[number].name}}));
      }
      return series;
    });
  }
  if (context.world_size == settings.worlds.back()) {
    rows.finish();
  }
  save_trace(settings, context, ranks);
}

int measure_collectives(AllReduceSettings settings) {
  if (settings.repetitions > 0) {
    settings.least = settings.most = settings.repetitions;
  }
  for (const int world : settings.worlds) {
    const auto body = [&](RankContext& context) { measure_world(context, settings); };
    if (const int code = run_ranks(settings, world, body)) {
      return code;
    }
  }
  return 0;
}

}  // namespace

AllReduceExperiment collectives() {
  return {
      .name = "collectives",
      .about = "Time and bandwidth over message and world sizes, as nccl-tests measures them",
      .presets = {.quick = "worlds of 2, 4 and 6 ranks, sizes of 1 KiB to 16 MiB, each 4 times "
                           "the one before, and 128 MiB; 40 calls of small tensors by 2 ranks, "
                           "and down to 2 of larger ones or by more ranks, after 1 to warm up",
                  .full = "each size to 128 MiB twice the one before, 1000 to 20 calls, after 5",
                  .paper = "as full with a GPU for each rank: 6 GPUs of any model. Nothing was "
                           "published of this experiment; the preset is named as elsewhere"},
      .gpus = 6,
      .defaults = collectives_defaults,
      .add_flags = add_collectives_flags,
      .run = measure_collectives};
}

}  // namespace ddp
