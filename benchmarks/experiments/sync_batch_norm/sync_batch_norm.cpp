// Stage 04: time and memory of synchronized batch normalization over a grid of small inputs,
// compared with the port of torch.nn.SyncBatchNorm, and with libtorch's at::native_batch_norm over each rank's own batch, which communicates nothing.
//
// The grid and the quantities are those of the published table: the median time of a call, and the
// peak of allocated memory, here the sum of module, input, output and all intermediates (the
// published 41,984 bytes for 32x128 contain twice 16,384: input and output). As published, affine
// is false; forward alone uses an input without a gradient. Forward and backward together are
// measured in addition.
//
// All variants are interleaved, call by call. The ranks begin a call together; its time is that of
// the slowest rank. The collective's time is that of the rank that spends the least in it: it
// arrived last, and waited for no other rank.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <array>
#include <cstdio>
#include <map>
#include <set>

#include "baselines/batch_norms.h"
#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "experiments/sync_batch_norm/timed_backend.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"

namespace {

using namespace ddp;

constexpr std::array kDirections = {"forward", "forward + backward"};
// What is measured of each call.
constexpr std::int64_t kTime = 0;
constexpr std::int64_t kCollective = 1;
// The series of each call.
constexpr std::array kQuantities = {"time", "collective", "peak memory"};
// The lifetime of what the backend allocates on its own threads varies slightly.
constexpr int kPeakRepetitions = 9;

const std::map<std::string, Repetitions> kPresets = {
    {"quick", {.measured = 200, .warmup = 20}},
    {"full", {.measured = 10'000, .warmup = 100}},
    {"paper", {.measured = 10'000, .warmup = 100}},
};
const PresetsInWords kInWords = {
    .quick =
        "the published 8 rows, batch 32 and 64 by hidden size 128 to 1024, on 2 ranks: 200 "
        "calls a row, after 20 to warm up",
    .full = "the same with the published 10,000 calls a row, after 100",
    .paper = "as full, on 2 GPUs of the published model",
};
const Hardware kPublished = {.gpus = 2, .model = "RTX A4000"};

struct Settings : BenchmarkOptions {
  std::set<std::int64_t> batch_sizes = {32, 64};
  std::set<std::int64_t> hidden_dims = {128, 256, 512, 1024};
  Repetitions repetitions;
};

// The shape of an input.
struct Shape {
  std::int64_t batch, hidden;

  Parameters labels() const { return {{"batch_size", batch}, {"hidden_dim", hidden}}; }
};

// A variant in a direction. all_calls() begins with those of the first variant.
struct Call {
  std::string variant;
  bool backward;
};

std::vector<Call> all_calls() {
  std::vector<Call> calls;
  for (const char* variant : {kStageBatchNorm, kBaselineBatchNorm, kLocalBatchNorm}) {
    calls.push_back({variant, /*backward=*/false});
    calls.push_back({variant, /*backward=*/true});
  }
  return calls;
}

// A module, with its input and gradient.
class Subject {
 public:
  Subject(const Call& call, const Shape& shape, const at::Device& device,
          const ProcessGroupPtr& group)
      : batch_norm_(
            make_batch_norm(call.variant, {.num_features = shape.hidden, .affine = false}, group)),
        input_(at::randn({shape.batch, shape.hidden}, at::device(device))),
        gradient_(call.backward ? at::randn_like(input_) : at::Tensor()) {
    batch_norm_->to(device);
    input_.set_requires_grad(call.backward);
  }

  void call() {
    output_ = batch_norm_->forward(input_);
    if (gradient_.defined()) {
      output_.backward(gradient_);
    }
  }

  void forget() {
    output_.reset();
    input_.mutable_grad().reset();  // there are no parameters
  }

 private:
  std::shared_ptr<BatchNorm> batch_norm_;
  at::Tensor input_, gradient_, output_;
};

// One rank's measurements of one row.
class Measurement {
 public:
  Measurement(const DeviceContext& device_context, const RankContext& context)
      : device_context_(device_context),
        backend_(c10::make_intrusive<TimedBackend>(device_context.group->getDefaultBackend(),
                                                   device_context.device)),
        group_(make_process_group(backend_, store_for_next_backend(context))) {}

  // Seconds: [repetitions, calls, kTime and kCollective].
  at::Tensor times(const Shape& shape, const Repetitions& repetitions, Progress& progress) {
    std::vector<Subject> subjects;
    for (const Call& call : all_calls()) {
      subjects.emplace_back(call, shape, device_context_.device, group_);
    }
    const at::Tensor times = measure_interleaved(
        repetitions, subjects.size(), [&](std::size_t call) { return time_once(subjects[call]); },
        &progress);
    const at::Tensor slowest = largest_of_ranks(times.select(2, kTime), device_context_);
    const at::Tensor last = -largest_of_ranks(-times.select(2, kCollective), device_context_);
    return at::stack({slowest, last}, 2);
  }

  // Bytes: [kPeakRepetitions, calls, 1].
  at::Tensor peaks(const Shape& shape) {
    const std::vector<Call> calls = all_calls();
    const at::Tensor peaks =
        measure_interleaved({.measured = kPeakRepetitions, .warmup = 0}, calls.size(),
                            [&](std::size_t call) -> std::vector<double> {
                              return {static_cast<double>(peak_once(calls[call], shape))};
                            });
    return largest_of_ranks(peaks, device_context_);
  }

 private:
  std::int64_t peak_once(const Call& call, const Shape& shape) {
    return peak_bytes(device_context_.device,
                      [&] { Subject(call, shape, device_context_.device, group_).call(); });
  }

  std::vector<double> time_once(Subject& subject) {
    const double seconds =
        seconds_together(*timer_, device_context_.group, [&] { subject.call(); });
    subject.forget();
    return {seconds, backend_->take_seconds()};
  }

  const DeviceContext& device_context_;
  const c10::intrusive_ptr<TimedBackend> backend_;
  const ProcessGroupPtr group_;
  std::unique_ptr<DeviceTimer> timer_ = make_device_timer(device_context_.device);
};

// Throws unless the stage computes what the baseline does: otherwise it is not worth measuring.
void check_stage(const Settings& settings, const DeviceContext& device_context) {
  const Shape shape = {*settings.batch_sizes.begin(), *settings.hidden_dims.begin()};
  const BatchNormOptions options = {.num_features = shape.hidden, .affine = false};
  const at::Tensor input =
      at::randn({shape.batch, shape.hidden}, at::device(device_context.device));
  const at::Tensor gradient = at::randn_like(input);
  std::vector<at::Tensor> outputs, gradients;
  for (const char* variant : {kStageBatchNorm, kBaselineBatchNorm}) {
    const auto batch_norm = make_batch_norm(variant, options, device_context.group);
    batch_norm->to(device_context.device);
    const at::Tensor own_input = input.clone().set_requires_grad(true);
    outputs.push_back(batch_norm->forward(own_input));
    outputs.back().backward(gradient);
    gradients.push_back(own_input.grad());
  }
  for (const auto& both : {outputs, gradients}) {
    const double difference = (both[0] - both[1]).abs().max().item<double>();
    TORCH_CHECK(difference <= 1e-3, "the stage's ",
                both[0].is_same(outputs[0]) ? "output" : "input gradient",
                " is not the baseline's: they differ by ", difference,
                ". There is no point in measuring it; `make test STAGE=04` says more");
  }
}

// kQuantities for each of all_calls(), from tensors whose second dimension is that of all_calls().
std::vector<Series> to_series(const std::vector<Call>& calls, const at::Tensor& times,
                              const at::Tensor& peaks) {
  std::vector<Series> series;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    const auto labels = [&](const char* quantity) -> Parameters {
      return {{"variant", calls[call].variant},
              {"direction", kDirections[calls[call].backward ? 1 : 0]},
              {"quantity", quantity}};
    };
    series.push_back(series_of(times, call, kTime, labels(kQuantities[0])));
    series.push_back(series_of(times, call, kCollective, labels(kQuantities[1])));
    series.push_back(series_of(peaks, call, 0, labels(kQuantities[2])));
    series.back().unit = "bytes";
  }
  return series;
}

std::vector<Shape> all_shapes(const Settings& settings) {
  std::vector<Shape> shapes;
  for (std::int64_t batch : settings.batch_sizes) {
    for (std::int64_t hidden : settings.hidden_dims) {
      shapes.push_back({batch, hidden});
    }
  }
  return shapes;
}

void measure(const Settings& settings, const RankContext& context,
             const DeviceContext& device_context, ResumableRows& rows) {
  keep_freed_memory();
  check_stage(settings, device_context);
  const std::vector<Shape> shapes = all_shapes(settings);
  const int repetitions = settings.repetitions.all();
  Progress progress("sync_batch_norm, repetitions", static_cast<int>(shapes.size()) * repetitions,
                    context.rank);
  Measurement measurement(device_context, context);
  for (const Shape& shape : shapes) {
    rows.measure(shape.labels(), progress, repetitions, [&] {
      const at::Tensor peaks = measurement.peaks(shape);
      const at::Tensor times = measurement.times(shape, settings.repetitions, progress);
      return to_series(all_calls(), times, peaks);
    });
  }
}

Result header(const Settings& settings, const ProcessGroupPtr& group) {
  return {.run = to_run(settings, "sync_batch_norm", group),
          .parameters = {{"dtype", "float32"},
                         {"affine", std::int64_t{0}},
                         {"batch_sizes", c10::Join(", ", settings.batch_sizes)},
                         {"hidden_dims", c10::Join(", ", settings.hidden_dims)},
                         {"repetitions", settings.repetitions.measured},
                         {"warmup", settings.repetitions.warmup},
                         {"rate_gbit", settings.rate_gbit},
                         {"latency_us", settings.latency_us}}};
}

void print_table(const Settings& settings, const std::vector<Call>& calls, const Result& result) {
  std::printf("%-8s%-20s%7s%8s%16s%16s%14s\n", "variant", "direction", "batch", "hidden",
              "median [us]", "collective [us]", "peak [bytes]");
  const std::vector<Shape> shapes = all_shapes(settings);
  for (std::size_t call = 0; call < calls.size(); ++call) {
    for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
      const auto median = [&](std::size_t quantity) {
        const std::size_t series = (shape * calls.size() + call) * kQuantities.size() + quantity;
        return percentile(result.series[series].values, 50);
      };
      std::printf("%-8s%-20s%7ld%8ld%16.1f%16.1f%14.0f\n", calls[call].variant.c_str(),
                  kDirections[calls[call].backward ? 1 : 0], shapes[shape].batch,
                  shapes[shape].hidden, 1e6 * median(0), 1e6 * median(1), median(2));
    }
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  at::manual_seed(settings.seed + context.rank);
  ResumableRows rows(settings, header(settings, device_context.group), device_context);
  measure(settings, context, device_context, rows);
  const Result result = rows.finish();
  if (context.rank == 0) {
    print_table(settings, all_calls(), result);
  }
  save_trace(settings, context, device_context);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("Synchronized batch normalization of small inputs, beside its baseline");
  Settings settings;
  settings.repetitions = chosen(kPresets, argc, argv);
  add_flags(line, settings, argc, argv);
  add_flags(line, settings.repetitions);
  add_number(line, "--batch-sizes", settings.batch_sizes, "Samples of each rank");
  add_number(line, "--hidden-dims", settings.hidden_dims, "Features of a sample");
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv, settings, kPublished)) {
    return *code;
  }
  return run_benchmark(settings, kBatchNormStage,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
