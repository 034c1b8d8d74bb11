// Stage 04 without communication: how fast its passes over a large input are, and how much memory
// they take, compared with libtorch's own at::native_batch_norm on this rank's own batch.
//
// The two are interleaved, in each memory format: forward, of an input that requires a gradient,
// and backward. They are compared within a repetition, so that a machine that is sometimes busy
// hardly disturbs the ratios. Freed memory stays in the process, so that neither waits for new
// pages.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <cstdio>
#include <map>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/peak_memory.h"
#include "harness/presets.h"
#include "harness/resumable_rows.h"
#include "peers/batch_norms.h"

namespace {

using namespace ddp;

constexpr std::array kVariants = {kStageBatchNorm, kLocalBatchNorm};
constexpr std::array kTimedParts = {"forward", "backward"};
constexpr std::array kPeakParts = {"forward", "forward + backward"};
constexpr std::size_t kSeries = kTimedParts.size() + kPeakParts.size();  // per variant

struct Layout {
  const char* name;
  at::MemoryFormat format;
};
constexpr std::array kLayouts = {Layout{"contiguous", at::MemoryFormat::Contiguous},
                                 Layout{"channels_last", at::MemoryFormat::ChannelsLast}};

const std::map<std::string, Repetitions> kPresets = {
    {"quick", {.measured = 20, .warmup = 3}},
    {"full", {.measured = 200, .warmup = 5}},
    {"paper", {.measured = 200, .warmup = 5}},
};
const PresetsInWords kInWords = {
    .quick =
        "an input of (256, 64, 28, 28), contiguous and channels_last, 1 rank with 2 threads: "
        "20 repetitions, after 3 to warm up",
    .full = "the same for 200 repetitions, after 5",
    .paper = "as full on a GPU of any model, since no table was published",
};
const Hardware kPublished = {.gpus = 1, .model = ""};

struct Settings : BenchmarkOptions {
  std::int64_t batch = 256;
  std::int64_t channels = 64;
  std::int64_t side = 28;
  int threads = 2;
  Repetitions repetitions;
};

at::Tensor make_tensor(const Settings& settings, const Layout& layout, const at::Device& device) {
  const at::Tensor tensor =
      at::empty({settings.batch, settings.channels, settings.side, settings.side},
                at::device(device).memory_format(layout.format));
  return tensor.normal_();
}

// One rank's measurements of one layout.
class Measurement {
 public:
  Measurement(const Settings& settings, const Layout& layout, const DeviceContext& device_context)
      : settings_(settings), layout_(layout), device_context_(device_context) {}

  // Seconds of each of kTimedParts: [repetitions, variants, parts], of the slowest rank.
  at::Tensor times(std::optional<Progress>& progress) {
    std::vector<std::shared_ptr<BatchNorm>> batch_norms;
    batch_norms.reserve(kVariants.size());
    for (const char* variant : kVariants) {
      batch_norms.push_back(make(variant));
    }
    const at::Tensor input = make_input();
    const at::Tensor gradient = make_tensor(settings_, layout_, device_context_.device);
    const at::Tensor times = measure_interleaved(
        settings_.repetitions, kVariants.size(),
        [&](std::size_t variant) { return time_once(*batch_norms[variant], input, gradient); },
        progress);
    return largest_of_ranks(times, device_context_);
  }

  // Bytes of each of kPeakParts, including input and upstream gradient: [1, variants, parts].
  at::Tensor peaks() const {
    std::vector<double> peaks;
    for (const char* variant : kVariants) {
      for (bool backward : {false, true}) {
        peaks.push_back(static_cast<double>(peak(variant, backward)));
      }
    }
    return largest_of_ranks(at::tensor(peaks, at::kDouble).view({1, kVariants.size(), -1}),
                            device_context_);
  }

 private:
  std::shared_ptr<BatchNorm> make(const std::string& variant) const {
    auto batch_norm =
        make_batch_norm(variant, {.num_features = settings_.channels}, device_context_.group);
    batch_norm->to(device_context_.device);
    return batch_norm;
  }

  at::Tensor make_input() const {
    return make_tensor(settings_, layout_, device_context_.device).set_requires_grad(true);
  }

  std::int64_t peak(const std::string& variant, bool backward) const {
    return peak_bytes(device_context_.device, [&] {
      const at::Tensor input = make_input();
      const at::Tensor gradient =
          backward ? make_tensor(settings_, layout_, device_context_.device) : at::Tensor();
      const at::Tensor output = make(variant)->forward(input);
      if (backward) {
        output.backward(gradient);
      }
    });
  }

  std::vector<double> time_once(BatchNorm& batch_norm, const at::Tensor& input,
                                const at::Tensor& gradient) {
    at::Tensor output;
    const double forward = timed([&] { output = batch_norm.forward(input); });
    const double backward = timed([&] { output.backward(gradient); });
    drop_gradients(batch_norm, input);
    return {forward, backward};
  }

  double timed(const std::function<void()>& part) {
    barrier(device_context_.group);
    timer_->start();
    part();
    timer_->stop();
    return timer_->seconds();
  }

  const Settings& settings_;
  const Layout& layout_;
  const DeviceContext& device_context_;
  std::unique_ptr<DeviceTimer> timer_ = make_device_timer(device_context_.device);
};

// The measurements of one layout, see Measurement: a time and a peak for each of two parts.
std::vector<Series> to_series(const at::Tensor& times, const at::Tensor& peaks) {
  std::vector<Series> series;
  series.reserve(kVariants.size() * kSeries);
  for (std::size_t variant = 0; variant < kVariants.size(); ++variant) {
    const auto labels = [&](const char* part, const char* quantity) -> Parameters {
      return {{"variant", kVariants[variant]}, {"part", part}, {"quantity", quantity}};
    };
    for (std::size_t part = 0; part < kTimedParts.size(); ++part) {
      series.push_back(series_of(times, variant, part, labels(kTimedParts[part], "time")));
    }
    for (std::size_t part = 0; part < kPeakParts.size(); ++part) {
      series.push_back(series_of(peaks, variant, part, labels(kPeakParts[part], "peak memory")));
      series.back().unit = "bytes";
    }
  }
  return series;
}

void measure(const Settings& settings, const DeviceContext& device_context, ResumableRows& rows) {
  keep_freed_memory();
  const int repetitions = settings.repetitions.warmup + settings.repetitions.measured;
  std::optional<Progress> progress;
  if (device_context.group->getRank() == 0) {
    progress.emplace("batch_norm_speed, repetitions",
                     static_cast<int>(kLayouts.size()) * repetitions);
  }
  for (const Layout& layout : kLayouts) {
    const Parameters labels = {{"layout", layout.name}};
    if (!rows.has(labels)) {
      Measurement measurement(settings, layout, device_context);
      const at::Tensor peaks = measurement.peaks();
      rows.add(labels, to_series(measurement.times(progress), peaks));
    } else if (progress) {
      progress->skip(repetitions);
    }
  }
}

PartialResult header(const Settings& settings, const ProcessGroupPtr& group) {
  return {.run = to_run(settings, "batch_norm_speed", group),
          .parameters = {{"batch_size", settings.batch},
                         {"channels", settings.channels},
                         {"image_size", settings.side},
                         {"dtype", "float32"},
                         {"threads", settings.threads},
                         {"repetitions", settings.repetitions.measured},
                         {"warmup", settings.repetitions.warmup}},
          .rows = {}};
}

// The stage's speedup over local: the median of the repetitions' ratios.
double speedup(const std::vector<double>& stage, const std::vector<double>& local) {
  std::vector<double> ratios = local;
  for (std::size_t repetition = 0; repetition < ratios.size(); ++repetition) {
    ratios[repetition] /= stage[repetition];
  }
  return percentile(ratios, 50);
}

void print_row(const Series& stage, const Series& local) {
  const bool is_time = stage.unit == "s";
  const double scale = is_time ? 1e3 : 0x1p-20;
  const auto text = [&](std::size_t label) {
    return std::get<std::string>(stage.labels[label].second);
  };
  const double own = percentile(stage.values, 50);
  const double other = percentile(local.values, 50);
  std::printf("%-15s%-24s%12.2f%12.2f%12.2f\n", text(0).c_str(),
              (text(2) + (is_time ? " [ms]" : " [MiB]")).c_str(), scale * own, scale * other,
              is_time ? speedup(stage.values, local.values) : own / other);
}

void print_table(const Result& result) {
  std::printf("%-39s%12s%12s%12s\n", "medians", kStageBatchNorm, kLocalBatchNorm, "ratio");
  for (std::size_t layout = 0; layout < kLayouts.size(); ++layout) {
    for (std::size_t series = 0; series < kSeries; ++series) {
      const std::size_t stage = layout * kVariants.size() * kSeries + series;
      print_row(result.series[stage], result.series[stage + kSeries]);
    }
  }
  std::printf(
      "ratio: of times, how many times as fast as %s, the median over the repetitions; of peak "
      "memory, how many times as much\n",
      kLocalBatchNorm);
}

void run_rank(const RankContext& context, const Settings& settings) {
  at::set_num_threads(settings.threads);
  const DeviceContext device_context = make_device_context(settings, context);
  at::manual_seed(settings.seed + context.rank);
  ResumableRows rows(settings, header(settings, device_context.group), device_context);
  measure(settings, device_context, rows);
  const Result result = rows.finish();
  if (context.rank == 0) {
    print_table(result);
  }
  save_trace(settings, context, device_context);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CommandLine line("Synchronized batch normalization of a large input beside libtorch's local one");
  Settings settings;
  settings.world_size = 1;
  add_flags(line, settings, argc, argv);
  add_flags(line, settings.repetitions);
  const auto sized = [&](const char* flag, auto& value, const char* what, int most) {
    line.add(flag, value, what).in_range(1, most).show_default();
  };
  sized("--batch-size", settings.batch, "Images of each rank", 1 << 20);
  sized("--channels", settings.channels, "Features of the normalization", 1 << 20);
  sized("--image-size", settings.side, "Pixels of an image's side", 1 << 12);
  sized("--threads", settings.threads, "That each rank computes with, on the CPU", 1024);
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = line.parse(argc, argv)) {
    return *code;
  }
  if (const int code = check_preset(line, settings, kPublished)) {
    return code;
  }
  apply_preset(settings.repetitions, kPresets.at(settings.preset));
  return run_benchmark(settings, kBatchNormStage,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
