// Stage 04 without communication: how fast its passes over a large input are, and how much memory
// they take, beside libtorch's own at::native_batch_norm, which this rank runs on its own batch.
//
// Both take turns, in each memory format: forward, of an input that requires a gradient, and
// backward. They are compared within a round, so that a machine that is busy now and then disturbs
// the ratios little. Freed memory stays with the process, so that neither waits for new pages.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <cstdio>
#include <map>

#include "command_line.h"
#include "ddp/benchmark.h"
#include "ddp/device_timer.h"
#include "support/batch_norms.h"
#include "support/peak_memory.h"
#include "support/turns.h"

namespace {

using namespace ddp;

constexpr std::array kVariants = {kStageBatchNorm, kLocalBatchNorm};
constexpr std::array kTimedParts = {"forward", "backward"};
constexpr std::array kPeakParts = {"forward", "forward + backward"};

struct Layout {
  const char* name;
  at::MemoryFormat format;
};
constexpr std::array kLayouts = {Layout{"contiguous", at::MemoryFormat::Contiguous},
                                 Layout{"channels_last", at::MemoryFormat::ChannelsLast}};

const std::map<std::string, Rounds> kPresets = {
    {"quick", {.measured = 20, .warmup = 3}},
    {"full", {.measured = 200, .warmup = 5}},
    {"paper", {.measured = 200, .warmup = 5}},
};

struct Settings : BenchmarkOptions {
  std::int64_t batch = 256;
  std::int64_t channels = 64;
  std::int64_t side = 28;
  int threads = 2;
  Rounds rounds;
};

at::Tensor make_tensor(const Settings& settings, const Layout& layout, const at::Device& device) {
  const at::Tensor tensor =
      at::empty({settings.batch, settings.channels, settings.side, settings.side},
                at::device(device).memory_format(layout.format));
  return tensor.normal_();
}

// What a rank measures in one layout.
class Measurement {
 public:
  Measurement(const Settings& settings, const Layout& layout, const Workplace& workplace)
      : settings_(settings), layout_(layout), workplace_(workplace) {}

  // Seconds of each of kTimedParts: [rounds, variants, parts], of the slowest rank.
  at::Tensor times(std::optional<Progress>& progress) {
    std::vector<std::shared_ptr<BatchNorm>> batch_norms;
    batch_norms.reserve(kVariants.size());
    for (const char* variant : kVariants) {
      batch_norms.push_back(make(variant));
    }
    const at::Tensor input = make_input();
    const at::Tensor gradient = make_tensor(settings_, layout_, workplace_.device);
    const at::Tensor times = take_turns(
        settings_.rounds, kVariants.size(),
        [&](std::size_t variant) { return time_once(*batch_norms[variant], input, gradient); },
        progress);
    return largest_of_ranks(times, workplace_);
  }

  // Bytes of each of kPeakParts, input and upstream gradient counted in: [1, variants, parts].
  at::Tensor peaks() const {
    std::vector<double> peaks;
    for (const char* variant : kVariants) {
      for (bool backward : {false, true}) {
        peaks.push_back(static_cast<double>(peak(variant, backward)));
      }
    }
    return largest_of_ranks(at::tensor(peaks, at::kDouble).view({1, kVariants.size(), -1}),
                            workplace_);
  }

 private:
  std::shared_ptr<BatchNorm> make(const std::string& variant) const {
    auto batch_norm =
        make_batch_norm(variant, {.num_features = settings_.channels}, workplace_.group);
    batch_norm->to(workplace_.device);
    return batch_norm;
  }

  at::Tensor make_input() const {
    return make_tensor(settings_, layout_, workplace_.device).set_requires_grad(true);
  }

  std::int64_t peak(const std::string& variant, bool backward) const {
    return peak_bytes(workplace_.device, [&] {
      const at::Tensor input = make_input();
      const at::Tensor gradient =
          backward ? make_tensor(settings_, layout_, workplace_.device) : at::Tensor();
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
    barrier(workplace_.group);
    timer_->start();
    part();
    timer_->stop();
    return timer_->seconds();
  }

  const Settings& settings_;
  const Layout& layout_;
  const Workplace& workplace_;
  std::unique_ptr<DeviceTimer> timer_ = make_device_timer(workplace_.device);
};

// What was measured in one layout.
struct Measured {
  const Layout& layout;
  at::Tensor times;  // [rounds, variants, kTimedParts]
  at::Tensor peaks;  // [1, variants, kPeakParts]
};

std::vector<Measured> measure(const Settings& settings, const Workplace& workplace) {
  keep_freed_memory();
  std::optional<Progress> progress;
  if (workplace.group->getRank() == 0) {
    const int rounds = settings.rounds.warmup + settings.rounds.measured;
    progress.emplace("batch_norm_speed, rounds", static_cast<int>(kLayouts.size()) * rounds);
  }
  std::vector<Measured> measured;
  for (const Layout& layout : kLayouts) {
    Measurement measurement(settings, layout, workplace);
    const at::Tensor peaks = measurement.peaks();
    measured.push_back({layout, measurement.times(progress), peaks});
  }
  return measured;
}

Result to_result(const Settings& settings, const std::vector<Measured>& measured,
                 const ProcessGroupPtr& group) {
  Result result = {.run = to_run(settings, "batch_norm_speed", group),
                   .parameters = {{"batch_size", settings.batch},
                                  {"channels", settings.channels},
                                  {"image_size", settings.side},
                                  {"dtype", "float32"},
                                  {"threads", settings.threads},
                                  {"rounds", settings.rounds.measured},
                                  {"warmup", settings.rounds.warmup}},
                   .series = {}};
  for (const Measured& one : measured) {
    for (std::size_t variant = 0; variant < kVariants.size(); ++variant) {
      const auto labels = [&](const char* part, const char* quantity) -> Parameters {
        return {{"layout", one.layout.name},
                {"variant", kVariants[variant]},
                {"part", part},
                {"quantity", quantity}};
      };
      for (std::size_t part = 0; part < kTimedParts.size(); ++part) {
        result.series.push_back(
            series_of(one.times, variant, part, labels(kTimedParts[part], "time")));
      }
      for (std::size_t part = 0; part < kPeakParts.size(); ++part) {
        result.series.push_back(
            series_of(one.peaks, variant, part, labels(kPeakParts[part], "peak memory")));
        result.series.back().unit = "bytes";
      }
    }
  }
  return result;
}

// How many times as fast as local the stage is: the median of the rounds' ratios.
double speedup(const at::Tensor& times, std::size_t part) {
  const at::Tensor of_part = times.select(2, static_cast<std::int64_t>(part));
  return (of_part.select(1, 1) / of_part.select(1, 0)).quantile(0.5).item<double>();
}

void print_row(const Layout& layout, const char* part, const at::Tensor& values, double scale,
               double ratio) {
  const at::Tensor medians = values.quantile(0.5, /*dim=*/0) * scale;
  std::printf("%-15s%-24s%12.2f%12.2f%12.2f\n", layout.name, part, medians[0].item<double>(),
              medians[1].item<double>(), ratio);
}

void print_table(const std::vector<Measured>& measured) {
  std::printf("%-39s%12s%12s%12s\n", "medians", kStageBatchNorm, kLocalBatchNorm, "ratio");
  for (const Measured& one : measured) {
    for (std::size_t part = 0; part < kTimedParts.size(); ++part) {
      const std::string title = kTimedParts[part] + std::string(" [ms]");
      print_row(one.layout, title.c_str(), one.times.select(2, static_cast<std::int64_t>(part)),
                1e3, speedup(one.times, part));
    }
    for (std::size_t part = 0; part < kPeakParts.size(); ++part) {
      const std::string title = kPeakParts[part] + std::string(" [MiB]");
      const at::Tensor peaks = one.peaks.select(2, static_cast<std::int64_t>(part));
      print_row(one.layout, title.c_str(), peaks, 0x1p-20,
                (peaks[0][0] / peaks[0][1]).item<double>());
    }
  }
  std::printf(
      "ratio: of times, how many times as fast as %s, the median over the rounds; of peak "
      "memory, how many times as much\n",
      kLocalBatchNorm);
}

void run_rank(const RankContext& context, const Settings& settings) {
  at::set_num_threads(settings.threads);
  const Workplace workplace = make_workplace(settings, context);
  at::manual_seed(settings.seed + context.rank);
  const std::vector<Measured> measured = measure(settings, workplace);
  if (context.rank == 0) {
    save_result(settings, to_result(settings, measured, workplace.group));
    print_table(measured);
  }
  save_trace(settings, context, workplace);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App app("Synchronized batch normalization of a large input beside libtorch's local one");
  Settings settings;
  settings.world_size = 1;
  add_flags(app, settings, argc, argv);
  add_flags(app, settings.rounds);
  const auto sized = [&](const char* flag, auto& value, const char* what, int most) {
    app.add_option(flag, value, what)->check(CLI::Range(1, most))->capture_default_str();
  };
  sized("--batch-size", settings.batch, "Images of each rank", 1 << 20);
  sized("--channels", settings.channels, "Features of the normalization", 1 << 20);
  sized("--image-size", settings.side, "Pixels of an image's side", 1 << 12);
  sized("--threads", settings.threads, "That each rank computes with, on the CPU", 1024);
  CLI11_PARSE(app, argc, argv);
  apply_preset(settings.rounds, kPresets.at(settings.preset));
  return run_benchmark(settings, "04_sync_batch_norm",
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
