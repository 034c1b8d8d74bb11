// Stage 04 without communication: how fast its passes over a large input are, and how much memory
// they take, compared with the fused peer's, with libtorch's own at::native_batch_norm on this
// rank's own batch, and with the limit that memory sets: forward has to read the input twice, for
// the statistics and to normalize by them, and to write the output; backward reads input and
// upstream gradient twice, and writes the input's gradient. A copy, measured beside them, reads
// once and writes once.
//
// All are interleaved, in each memory format: forward, of an input that requires a gradient,
// and backward. They are compared within a repetition, so that a machine that is sometimes busy
// hardly disturbs the ratios. Freed memory stays in the process, so that neither waits for new
// pages.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <functional>
#include <map>

#include "ddp/meters/device_timer.h"
#include "experiments/batch_norm_speed/tables.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/peak_memory.h"
#include "harness/presets.h"
#include "harness/resumable_rows.h"
#include "peers/batch_norms.h"

namespace {

using namespace ddp;

// How often each part goes through as many bytes as the input has; a copy does it twice.
constexpr std::array kLeastTraffic = {3, 5};
constexpr int kTrafficOfCopy = 2;

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

std::vector<std::string> names(const DeviceContext& device_context) {
  return batch_norm_names(device_context.device,
                          {kStageBatchNorm, kFusedBatchNorm, kLocalBatchNorm});
}

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

  // Seconds of each of kTimedParts: [repetitions, batch norms and the limit, parts], of the slowest
  // rank.
  at::Tensor times(std::optional<Progress>& progress) {
    std::vector<std::shared_ptr<BatchNorm>> batch_norms;
    for (const std::string& name : names(device_context_)) {
      batch_norms.push_back(make(name));
    }
    const at::Tensor input = make_input();
    const at::Tensor gradient = make_tensor(settings_, layout_, device_context_.device);
    at::Tensor copy = at::empty_like(input);
    const at::Tensor times = measure_interleaved(
        settings_.repetitions, batch_norms.size() + 1,
        [&](std::size_t variant) {
          return variant < batch_norms.size() ? time_once(*batch_norms[variant], input, gradient)
                                              : limits(input.detach(), copy);
        },
        progress);
    return largest_of_ranks(times, device_context_);
  }

  // Bytes of each of kPeakParts, including input and upstream gradient: [1, batch norms, parts].
  at::Tensor peaks() const {
    std::vector<double> peaks;
    for (const std::string& name : names(device_context_)) {
      for (bool backward : {false, true}) {
        peaks.push_back(static_cast<double>(peak(name, backward)));
      }
    }
    return largest_of_ranks(at::tensor(peaks, at::kDouble).view({1, -1, kPeakParts.size()}),
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

  // The seconds that memory takes for each of kTimedParts, at a copy's pace.
  std::vector<double> limits(const at::Tensor& input, at::Tensor& copy) {
    const double seconds = timed([&] { copy.copy_(input); });
    std::vector<double> limits(kLeastTraffic.begin(), kLeastTraffic.end());
    for (double& limit : limits) {
      limit *= seconds / kTrafficOfCopy;
    }
    return limits;
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
std::vector<Series> to_series(const std::vector<std::string>& batch_norms, const at::Tensor& times,
                              const at::Tensor& peaks) {
  std::vector<Series> series;
  const auto add_times = [&](std::size_t variant, const std::string& name) {
    for (std::size_t part = 0; part < kTimedParts.size(); ++part) {
      series.push_back(series_of(times, variant, part, labels_of(name, kTimedParts[part], "time")));
    }
  };
  for (std::size_t variant = 0; variant < batch_norms.size(); ++variant) {
    add_times(variant, batch_norms[variant]);
    for (std::size_t part = 0; part < kPeakParts.size(); ++part) {
      series.push_back(series_of(peaks, variant, part,
                                 labels_of(batch_norms[variant], kPeakParts[part], "peak memory")));
      series.back().unit = "bytes";
    }
  }
  add_times(batch_norms.size(), kMemoryLimit);
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
      rows.add(labels, to_series(names(device_context), measurement.times(progress), peaks));
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

void run_rank(const RankContext& context, const Settings& settings) {
  at::set_num_threads(settings.threads);
  const DeviceContext device_context = make_device_context(settings, context);
  at::manual_seed(settings.seed + context.rank);
  ResumableRows rows(settings, header(settings, device_context.group), device_context);
  measure(settings, device_context, rows);
  const Result result = rows.finish();
  if (context.rank == 0) {
    print_tables(result, names(device_context));
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
