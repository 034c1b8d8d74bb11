// Stage 03 compared with libtorch's c10d::Reducer, for several buffer sizes: forward and backward
// of ResNet-50.
//
// The experiment is PyTorch's own comparison of its C++ core (DistributedDataParallel, whose work
// the Reducer does) with a bucketed DDP in Python, with asynchronous and with synchronous
// reduction. Stage 03 replaces the latter: async, and sync, which is overlap = false. Buffer sizes
// are 3M to 27M elements, M = 2^20; ResNet-50's 25,557,032 parameters are 24.37M, so buffers of 25M
// or more hold all of it.
//
// The published comparison is unequal. The same number M is the core's bucket_cap_mb, M MiB, and
// the size of the Python buffers in elements, M * 2^20 float32 or 4M MiB: core has four times as
// many buckets, and has begun long before the first of the others is full. It is repeated as
// published ("core"), and with the core's cap at 4M MiB as well ("core, equal bytes"). The core's
// first bucket is 1 MiB in both, as in PyTorch.
//
// The procedure is that of the published script, compare_ddp.py in PyTorch's
// benchmarks/distributed/ddp/compare, and flags change it one by one. The loss is the mean squared
// error against random targets (--loss). Rank 0's times count (--times-of). Gloo moves gradients,
// on GPUs as well (--backend). Before each forward core broadcasts the buffers of BatchNorm, as
// DistributedDataParallel does and the others do not (--no-broadcast-buffers): the published 1 % of
// forward. Forward is timed with the loss and core's preparations for a step; backward with the
// reduction, which for the stage is all of finish().
//
// Unlike in the script, the variants are interleaved, iteration by iteration, with a barrier before
// each. Each has one model and one batch for all buffer sizes; only its synchronizer is made anew
// for each. Gradients are set to none between steps, not to zero. The core uses its own buckets
// from the second iteration on, so at least two iterations should be discarded.
//
// All that is measured. With --preset published it is simulated instead: see published.cpp.
#include "experiments/compare_ddp/compare_ddp.h"

#include <c10/util/StringUtil.h>

#include <cstdio>
#include <map>
#include <sstream>

#include "ddp/meters/statistics.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/resumable_rows.h"

namespace {

using namespace ddp;

ComparisonAmount published() {
  ComparisonAmount amount = {.batch = 32, .image = 224, .iterations = 40, .discarded = 20};
  for (int size = 3; size <= 27; ++size) {
    amount.buffer_sizes.insert(size);
  }
  return amount;
}

const std::map<std::string, ComparisonAmount> kPresets = {
    {"quick",
     {.buffer_sizes = {3, 12, 27}, .batch = 2, .image = 32, .iterations = 18, .discarded = 3}},
    {"full", published()},
    {"paper", published()},
    {kPublishedPreset, published()},
};

std::string in_words(const std::string& buffer_sizes, const ComparisonAmount& amount) {
  std::ostringstream text;
  text << "buffers of " << buffer_sizes << " M elements; batch " << amount.batch << " of "
       << amount.image << "x" << amount.image << " images; " << amount.iterations << " iterations, "
       << amount.discarded << " of them discarded; 2 ranks";
  return text.str();
}

void print_table(const Result& result) {
  std::printf("%-8s%-20s%-10s%12s%10s\n", "buffer", "variant", "direction", "p50 [ms]", "delta%");
  std::map<std::string, double> core;  // by direction; it is each buffer size's first variant
  for (const auto& [labels, unit, values] : result.series) {
    const std::string size = std::to_string(std::get<std::int64_t>(labels[0].second)) + "M";
    const auto& variant = std::get<std::string>(labels[1].second);
    const auto& direction = std::get<std::string>(labels[2].second);
    const double median = percentile(values, 50);
    if (variant == "core") {
      core[direction] = median;
    }
    std::printf("%-8s%-20s%-10s%12.2f%10.2f\n", size.c_str(), variant.c_str(), direction.c_str(),
                1e3 * median, 100 * (median / core[direction] - 1));
  }
}

void run_rank(const RankContext& context, const ComparisonSettings& settings) {
  keep_freed_memory();
  const DeviceContext device_context = make_device_context(settings, context);
  const Result result = compare_on_ranks(settings, device_context);
  if (context.rank == 0) {
    print_table(result);
  }
  save_trace(settings, context, device_context);
}

void compute(const ComparisonSettings& settings) {
  const Result result = compare_at_published_scale(settings);
  print_published_summaries(result);
  save_result(settings, result);
}

// They say how to measure, so that they mean nothing to the simulated cluster.
const std::vector<std::string> kMeasuringFlags = {
    "--iterations", "--discard",          "--trace", "--loss", "--times-of",
    "--backend",    "--broadcast-buffers"};

void add_flags(CLI::App& line, ComparisonSettings& settings) {
  ComparisonAmount& amount = settings.amount;
  add_number_of_preset(line, "--buffer-sizes", amount.buffer_sizes,
                       "In M (2^20) elements, such as 3,24,25");
  add_number_of_preset(line, "--batch-size", amount.batch, "Samples of each rank");
  add_number_of_preset(line, "--image-size", amount.image, "Pixels of an image's side", 32);
  add_number_of_preset(line, "--iterations", amount.iterations, "Of each variant and buffer size");
  add_number_of_preset(line, "--discard", amount.discarded,
                       "How many of them are discarded, the first ones", 0);
  add_choice(line, "--loss", settings.loss, "What forward ends in", {"mse", "cross-entropy"});
  add_choice(line, "--times-of", settings.times_of, "The rank whose times count",
             {"rank0", "slowest"});
  settings.backend = kGlooBackend;
  line.get_option("--backend")
      ->description("What moves tensors; default: gloo, through host memory on GPUs");
  line.add_flag("--broadcast-buffers,!--no-broadcast-buffers", settings.broadcasts_buffers,
                "Whether core broadcasts BatchNorm's buffers before forward; default: it does");
}

void apply_preset(ComparisonAmount& amount, const ComparisonAmount& preset) {
  using Amount = ComparisonAmount;
  if (amount.buffer_sizes.empty()) {
    amount.buffer_sizes = preset.buffer_sizes;
  }
  for (int Amount::*field :
       {&Amount::batch, &Amount::image, &Amount::iterations, &Amount::discarded}) {
    if (amount.*field < 0) {
      amount.*field = preset.*field;
    }
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line(
      "Forward and backward of ResNet-50 over buffer sizes: stage 03 beside c10d::Reducer");
  ComparisonSettings settings;
  add_flags(line, settings, argc, argv);
  add_flags(line, settings);
  add_resume_flag(line, settings);
  add_flags(line, settings.cluster, settings);
  const ComparisonAmount& quick = kPresets.at("quick");
  const std::string as_published = in_words("3, 4, 5 ... 27", published());
  describe_presets(line,
                   {.quick = in_words(c10::Join(", ", quick.buffer_sizes), quick),
                    .full = as_published,
                    .paper = as_published + " on 2 GPUs of any model",
                    .published = "the same, computed for the published hardware with the "
                                 "stage's code on a simulated cluster: seconds, without a GPU"});
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (const std::string mistake = misplaced_flags(line, settings, kMeasuringFlags);
      !mistake.empty()) {
    return refuse(line, mistake);
  }
  if (const int code = check_preset(line, settings, {.gpus = 2})) {
    return code;
  }
  apply_preset(settings.amount, kPresets.at(settings.preset));
  const ComparisonAmount& amount = settings.amount;
  if (settings.preset == kPublishedPreset) {
    return run_on_cluster([&] { compute(settings); });
  }
  if (amount.discarded >= amount.iterations) {
    return refuse(line, "--discard: " + std::to_string(amount.discarded) + " of " +
                            std::to_string(amount.iterations) +
                            " iterations leave none to measure; discard fewer");
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
