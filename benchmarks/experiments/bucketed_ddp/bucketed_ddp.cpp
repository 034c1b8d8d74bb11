// Stage 03: how long an iteration of training a transformer takes with buckets of several sizes,
// compared with the variants without buckets of stages 01 and 02, libtorch's c10d::Reducer, and
// computing alone. The published experiment trained xl on 2 GPUs.
//
// Published sizes are called the maximum of a bucket. By stage 03's contract a size is a threshold:
// a bucket closes once it has reached it, and no tensor is cut. At 1 MB all 338 buckets of xl are
// larger, 10 to 61 times: a weight each. The reduced model's are larger by the same factors.
//
// An iteration begins on all ranks together, and contains forward, the cross entropy of the next
// token, backward, finish() and AdamW. The whole iteration, backward, and finish() are timed. The
// Reducer waits inside backward, and has no finish(): the corresponding time is that of its
// backward beyond that of computing alone. Each rank's times are kept; published are the means over
// the iterations, and of those the maximum over all ranks.
//
// All variants are interleaved, iteration by iteration, each with a model of its own. If there is
// not enough memory for that, they are measured one after another, on one model.

#include "03_bucketed_ddp/bucketed_ddp.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "ddp/meters/statistics.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/on_cluster.h"
#include "measuring/resumable_rows.h"
#include "measuring/trainer.h"
#include "measuring/variants.h"
#include "measuring/workload.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"
#include "models/transformer.h"

namespace {

using namespace ddp;

constexpr const char* kTrainingProgram = "bucketed_ddp";
constexpr const char* kReducerVariant = "Reducer";

// All that are compared; the first one has several bucket sizes.
constexpr const char* kBucketed = "bucketed";
const std::vector<std::string> kTrainingVariants = {kBucketed,    "naive",         "flat",
                                                    "overlapped", kReducerVariant, kComputeOnly};

// The labels of bucketed_ddp's series; each series has one of kIterationParts and one rank.
constexpr const char* kBatchLabel = "local_bs";
constexpr const char* kLengthLabel = "seq_len";
constexpr const char* kVariantLabel = "variant";
constexpr const char* kMegabytesLabel = "bucket_size_mb";  // as published; only of "bucketed"
constexpr const char* kCapLabel = "cap_bytes";             // here; only of "bucketed"
constexpr const char* kPartLabel = "part";

// The timed parts of an iteration: the whole of it, backward, and finish().
inline constexpr std::array kIterationParts = {"train", "backward", "all-reduce"};

// The command line of bucketed_ddp, completed from the preset.
struct TrainingSettings : BenchmarkOptions {
  std::string model;
  std::set<std::int64_t> batch_sizes = {2, 4};
  std::set<std::int64_t> sequence_lengths;
  std::set<std::int64_t> bucket_mb = {1, 10, 100, 1000};
  Repetitions repetitions;
  bool interleaved = true;
  ClusterFlags cluster;

  TransformerShape shape() const { return shape_of(cluster, model); }
  std::int64_t cap(std::int64_t megabytes) const { return cap_of_model(megabytes, model); }
  TrainedModels trained() const {
    return {.model = model,
            .of_each_rank = interleaved ? bucket_mb.size() + kTrainingVariants.size() : 1};
  }
};

// A variant, and its bucket size if it has buckets.
struct Way {
  std::string variant;
  VariantOptions options;
  Parameters labels;
};

// The Reducer's bucket size, scaled from xl as for the other variants: PyTorch's default.
constexpr std::int64_t kReducerMegabytes = 25;
constexpr std::int64_t kReducerFirstMegabytes = 1;

Way bucketed_way(const TrainingSettings& settings, std::int64_t megabytes, const Model& model) {
  const std::int64_t cap = settings.cap(megabytes);
  const auto buckets = assign_buckets(tensors_of(model.named_parameters()), cap).size();
  return {.variant = kBucketed,
          .options = {.cap_bytes = cap},
          .labels = {{kVariantLabel, kBucketed},
                     {kMegabytesLabel, megabytes},
                     {kCapLabel, cap},
                     {"buckets", static_cast<std::int64_t>(buckets)}}};
}

// The settings as a result stores them.
Parameters parameters_of(const TrainingSettings& settings) {
  const TransformerShape shape = settings.shape();
  return {{"model", settings.model},
          {"parameters", parameter_count(shape)},
          {"d_model", shape.d_model},
          {"d_ff", shape.d_ff},
          {"layers", shape.layers},
          {"heads", shape.heads},
          {"vocabulary", shape.vocabulary},
          {"dtype", "float32"},
          {"optimizer", "AdamW"},
          {"repetitions", settings.repetitions.measured},
          {"warmup", settings.repetitions.warmup},
          {"interleaved", static_cast<std::int64_t>(settings.interleaved)},
          {"reducer_cap_bytes", settings.cap(kReducerMegabytes)},
          {"reducer_first_bucket_bytes", settings.cap(kReducerFirstMegabytes)},
          {"rate_gbit", settings.rate_gbit},
          {"latency_us", settings.latency_us}};
}

// The ways of training `model` with these variants. The libraries of their stages must be loaded.
std::vector<Way> ways_of(const TrainingSettings& settings, const Model& model,
                         const std::vector<std::string>& variants) {
  const VariantOptions reducer = {.cap_bytes = settings.cap(kReducerMegabytes),
                                  .first_bucket_bytes = settings.cap(kReducerFirstMegabytes)};
  std::vector<Way> ways;
  for (const std::string& variant : variants) {
    if (variant != kBucketed) {
      ways.push_back(
          {.variant = variant, .options = reducer, .labels = {{kVariantLabel, variant}}});
      continue;
    }
    for (const std::int64_t megabytes : settings.bucket_mb) {
      ways.push_back(bucketed_way(settings, megabytes, model));
    }
  }
  return ways;
}

class Measurement {
 public:
  Measurement(const TrainingSettings& settings, const DeviceContext& device_context,
              ResumableRows& rows)
      : settings_(settings),
        device_context_(device_context),
        rows_(rows),
        model_(new_model()),
        ways_(ways_of(settings, *model_,
                      usable_variants(kTrainingVariants, settings.implementation, device_context))),
        progress_("bucketed_ddp, repetitions",
                  static_cast<int>((settings.interleaved ? 1 : ways_.size()) *
                                   settings.batch_sizes.size() * settings.sequence_lengths.size()) *
                      settings.repetitions.all(),
                  device_context.group->getRank()) {}

  void run() {
    for (const std::int64_t batch : settings_.batch_sizes) {
      for (const std::int64_t length : settings_.sequence_lengths) {
        const Parameters labels = {{kBatchLabel, batch}, {kLengthLabel, length}};
        if (settings_.interleaved) {
          measure_row(labels, ways_, batch, length);
          continue;
        }
        // Each variant is a row of its own, with the row's labels.
        for (const Way& way : ways_) {
          measure_row(joined(labels, way.labels),
                      {{.variant = way.variant, .options = way.options, .labels = {}}}, batch,
                      length);
        }
      }
    }
  }

 private:
  std::shared_ptr<Model> new_model() const {
    return make_transformer(transformer_shape(settings_.model),
                            {.seed = settings_.seed, .device = device_context_.device});
  }

  void measure_row(const Parameters& labels, const std::vector<Way>& ways, std::int64_t batch,
                   std::int64_t length) {
    rows_.measure(labels, progress_, settings_.repetitions.all(), [&] {
      const LabelledBatch data =
          make_token_batch({.batch = batch,
                            .length = length,
                            .vocabulary = transformer_shape(settings_.model).vocabulary},
                           settings_.seed, device_context_);
      return series_of_ranks(measure_ways(ways, data), ways);
    });
  }

  // Seconds on this rank: [repetitions, ways, kIterationParts].
  at::Tensor measure_ways(const std::vector<Way>& ways, const LabelledBatch& data) {
    std::vector<Trainer> trainers;
    trainers.reserve(ways.size());
    for (const Way& way : ways) {
      trainers.emplace_back(way.variant, settings_.interleaved ? new_model() : model_,
                            device_context_.group, TrainerOptions{way.options});
    }
    if (settings_.interleaved && !checked_) {
      expect_equal_gradients(ways, trainers, data);
    }
    std::vector<torch::optim::AdamW> optimizers;
    for (const Trainer& trainer : trainers) {
      optimizers.emplace_back(tensors_of(trainer.parameters()));
    }
    return measure_interleaved(
        settings_.repetitions, ways.size(),
        [&](std::size_t way) { return iterate(trainers[way], optimizers[way], data); }, &progress_);
  }

  void expect_equal_gradients(const std::vector<Way>& ways, std::vector<Trainer>& trainers,
                              const LabelledBatch& data) {
    std::vector<std::string> names;
    for (const Way& way : ways) {
      names.push_back(way.variant);
    }
    check_gradients(names, trainers, std::ranges::find(names, kReducerVariant) - names.begin(),
                    data);
    checked_ = true;
  }

  // Forward, loss, backward, finish(), optimizer; seconds of each of kIterationParts. On a GPU,
  // finish() begins when the computation of backward has ended there, so that its time is what
  // overlap could not hide.
  std::vector<double> iterate(Trainer& trainer, torch::optim::AdamW& optimizer,
                              const LabelledBatch& batch) const {
    const auto train = make_device_timer(device_context_.device),
               part = make_device_timer(device_context_.device);
    double backward = 0;
    const double whole = seconds_together(*train, device_context_.group, [&] {
      const at::Tensor loss = trainer.forward(batch);
      part->start();
      trainer.backward(loss);
      part->stop();
      backward = part->seconds();  // returns when the device has finished backward
      part->start();
      trainer.finish();
      part->stop();
      optimizer.step();
      // Not by zero_grad(), which first detaches gradients, and so throws if they are views of
      // buckets.
      for (const NamedTensor& parameter : trainer.parameters()) {
        parameter.tensor.mutable_grad().reset();
      }
    });
    return {whole, backward, part->seconds()};
  }

  std::vector<Series> series_of_ranks(const at::Tensor& times, const std::vector<Way>& ways) const {
    const at::Tensor all =
        all_gather(times.to(device_context_.device), device_context_.group).cpu();
    std::vector<Series> series;
    for (std::size_t way = 0; way < ways.size(); ++way) {
      for (std::size_t part = 0; part < kIterationParts.size(); ++part) {
        for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
          series.push_back(series_of(
              all[rank], way, part,
              joined(ways[way].labels, {{kPartLabel, kIterationParts[part]}, {"rank", rank}})));
        }
      }
    }
    return series;
  }

  const TrainingSettings& settings_;
  const DeviceContext& device_context_;
  ResumableRows& rows_;
  const std::shared_ptr<Model> model_;  // shared by all variants, unless they are interleaved
  const std::vector<Way> ways_;
  Progress progress_;
  bool checked_ = false;
};

// Measures on real ranks, of which this is one, and saves the result: complete on rank 0.
Result train_on_ranks(const TrainingSettings& settings, const DeviceContext& device_context) {
  if (!device_context.device.is_cpu()) {
    const std::string problem = why_no_memory(settings.trained(), 1, device_context.device);
    TORCH_CHECK(problem.empty(), problem);
  }
  keep_freed_memory();
  ResumableRows rows(settings,
                     {.run = to_run(settings, kTrainingProgram, device_context.group),
                      .parameters = parameters_of(settings)},
                     device_context);
  Measurement(settings, device_context, rows).run();
  return rows.finish();
}

constexpr std::int64_t kGpus = 2;
// Kernels that wait for a GPU: about 1,000, NVIDIA Developer Forums, 68937.
constexpr std::int64_t kLaunchQueue = 1024;

struct Setup {
  PublishedHardware hardware;
  double update_elements;  // that the optimizer reads and writes, for each parameter
  std::int64_t gpus;
  // Averaging begins, by the published program's clock, when its host has launched backward, and in
  // the flat variant the copies behind it, too: about when the GPU has computed all gradients.
  bool measures_by_host;
};

// The published GPUs are not named. An A100 with TF32 and PCI Express has the author's other tables.
Setup setup_of(const ClusterFlags& flags) {
  const Calibration fitted = fitted_for(flags, kTrainingProgram);
  const auto ns = [&](const char* name) {
    return static_cast<std::int64_t>(1e9 * fitted.constant(name));
  };
  Setup setup = {
      .hardware = {.gpu = known_gpu("A100"),
                   .topology = {.gpus_per_node = 1 << 20,
                                .inside = {.beta_ns_per_byte =
                                               1e9 / fitted.constant("link_bytes_per_second")},
                                .algorithm = cluster::AllReduce::kNccl,
                                .nccl = {.generation = cluster::NcclMachine::kAmpere},
                                .overhead_ns = ns("all_reduce_overhead_s")},
                   .pace = {.forward_efficiency = fitted.constant("forward_efficiency"),
                            .backward_efficiency = fitted.constant("backward_efficiency"),
                            .memory_efficiency = fitted.constant("memory_efficiency"),
                            .kernel_ns = kKernelNs,
                            .host = {.forward_ns = ns("forward_host_s"),
                                     .backward_ns = ns("backward_host_s")}}},
      .update_elements = fitted.constant("update_elements"),
      .gpus = single_world(flags, kGpus),
      .measures_by_host = fitted.constant("measures_by_host") > 0};
  apply(flags, setup.hardware);
  PublishedHardware& hardware = setup.hardware;
  if (hardware.topology.nccl.nvlink) {
    hardware.slowdown_beside_communication = slowdown_by_nvlink(hardware.gpu);
  } else {
    hardware.kernel_ns_beside_communication = ns("kernel_s_beside_all_reduce");
    hardware.slowdown_beside_computing = fitted.constant("slowdown_of_all_reduce");
  }
  hardware.gpu.launch_ns = ns("launch_s");
  hardware.launch_queue = kLaunchQueue;
  hardware.copy_bytes_per_second = hardware.pace.memory_efficiency * hardware.gpu.bytes_per_second;
  return setup;
}

double update_s(const ProfiledModel& model, const Setup& setup) {
  const auto elements = static_cast<double>(model.profile().elements());
  return setup.update_elements * elements * sizeof(float) / setup.hardware.copy_bytes_per_second;
}

// Seconds of kIterationParts.
std::array<double, kIterationParts.size()> times_of(const Way& way, const ProfiledModel& model,
                                                    const Setup& setup) {
  const cluster::StepTimes times =
      simulate_step(way.variant, model, setup.hardware, setup.gpus, way.options);
  const double train = in_seconds(times.total_ns) + update_s(model, setup);
  const std::int64_t late = times.total_ns - times.forward_ns - times.backward_ns;
  // The Reducer waits inside backward, and what comes after it has nothing to wait for.
  if (way.variant == kReducerVariant) {
    return {train, in_seconds(times.backward_ns + late), 0};
  }
  const bool measures_by_host =
      setup.measures_by_host && way.variant != "flat" && way.variant != kComputeOnly;
  return {train, in_seconds(times.backward_ns),
          in_seconds(measures_by_host ? times.total_ns - times.host_backward_end_ns : late)};
}

// The same at its published scale, in virtual time: the same series, of one value each, of one
// rank, since all do the same. Throws c10::ValueError for flags and calibrations that do not fit,
// c10::NotImplementedError if no stage is finished.
Result train_at_published_scale(const TrainingSettings& settings) {
  const Setup setup = setup_of(settings.cluster);
  const auto variants = variants_on_cluster(kTrainingVariants, settings.implementation);
  Result result = {.run = to_cluster_run(settings, kTrainingProgram, setup.gpus),
                   .parameters = joined(parameters_of(settings), describe(setup.hardware))};
  const ProfiledModel any(transformer_profile(settings.model, settings.shape(), {}));
  result.parameters.emplace_back("besides_s", update_s(any, setup));
  for (const std::int64_t batch : settings.batch_sizes) {
    for (const std::int64_t length : settings.sequence_lengths) {
      const ProfiledModel model(
          transformer_profile(settings.model, settings.shape(), {batch, length}));
      for (const Way& way : ways_of(settings, model, variants)) {
        const auto times = times_of(way, model, setup);
        for (std::size_t part = 0; part < kIterationParts.size(); ++part) {
          const Parameters labels =
              joined({{kBatchLabel, batch}, {kLengthLabel, length}}, way.labels);
          result.series.push_back(exact_time(
              joined(labels, {{kPartLabel, kIterationParts[part]}, {"rank", 0}}), times[part]));
        }
      }
    }
  }
  return result;
}

// One training variant, with one batch size and sequence length.
struct Training {
  std::int64_t batch = 0, length = 0;
  std::string variant;
  std::optional<std::int64_t> megabytes, cap_bytes;
  std::map<std::string, double> seconds = {};  // of each part: the mean, maximum over all ranks

  bool same_data(const Training& other) const {
    return batch == other.batch && length == other.length;
  }
};

// The series of one training are adjacent: its parts, each on all ranks.
std::vector<Training> trainings_of(const Result& result) {
  std::vector<Training> trainings;
  for (const Series& series : result.series) {
    const Training now = {.batch = *label_of<std::int64_t>(series, kBatchLabel),
                          .length = *label_of<std::int64_t>(series, kLengthLabel),
                          .variant = *label_of<std::string>(series, kVariantLabel),
                          .megabytes = label_of<std::int64_t>(series, kMegabytesLabel),
                          .cap_bytes = label_of<std::int64_t>(series, kCapLabel)};
    if (trainings.empty() || !trainings.back().same_data(now) ||
        trainings.back().variant != now.variant || trainings.back().megabytes != now.megabytes) {
      trainings.push_back(now);
    }
    double& seconds = trainings.back().seconds[*label_of<std::string>(series, kPartLabel)];
    seconds = std::max(seconds, summarize(series.values).mean);
  }
  return trainings;
}

// In the form in which torch prints a tensor of one element.
std::string as_tensor(double value, const std::string& device) {
  char text[64];
  const bool tiny = value != 0 && std::abs(value) < 1e-4;
  std::snprintf(text, sizeof(text), tiny ? "%.4e" : "%.4f", value);
  return std::string("tensor([") + text + "]" + (device == "cuda" ? ", device='cuda:0'" : "") + ")";
}

void print(const Training& training, const std::vector<Training>& all, const std::string& device,
           std::ostream& text) {
  text << "Training DDP model, local_bs: " << training.batch << ", seq_len: " << training.length;
  if (training.megabytes) {
    text << ", bucket_size_mb: " << *training.megabytes;
    if (*training.cap_bytes != *training.megabytes << 20) {
      text << " (of xl's gradients; here " << *training.cap_bytes << " bytes)";
    }
  } else {
    text << ", variant: " << training.variant;
  }
  const double train = training.seconds.at("train");
  text << "\ntotal time train: " << as_tensor(train, device) << "\n";
  if (training.variant == kComputeOnly) {
    return;
  }
  const char* what = "grad all reduce";
  double reduce = training.seconds.at("all-reduce");
  if (training.variant == kReducerVariant) {
    what = "backward beyond compute only";
    const auto alone = std::ranges::find_if(all, [&](const Training& other) {
      return other.variant == kComputeOnly && other.same_data(training);
    });
    reduce = training.seconds.at("backward") - alone->seconds.at("backward");
  }
  text << "total time " << what << ": " << as_tensor(reduce, device) << "\n"
       << "ratio " << what << " to train time: " << as_tensor(reduce / train, device) << "\n";
}

// The lines of the published experiment, for each batch, sequence length and bucket size:
//
//     Training DDP model, local_bs: 2, seq_len: 128, bucket_size_mb: 1
//     total time train: tensor([0.7293], device='cuda:0')
//     total time grad all reduce: tensor([0.2165], device='cuda:0')
//     ratio grad all reduce to train time: tensor([0.2969], device='cuda:0')
//
// in seconds: means over the iterations, the maximum over all ranks. If a cap is not of the
// published size, the first line gives both. Then follow similar lines for the variants without
// buckets, with their names. The Reducer waits inside backward: its lines give, instead of the
// all-reduce, the time of its backward beyond that of "compute only".
std::string training_lines(const Result& result) {
  const std::vector<Training> trainings = trainings_of(result);
  std::ostringstream text;
  for (const bool bucketed : {true, false}) {
    for (const Training& training : trainings) {
      if (training.megabytes.has_value() == bucketed) {
        print(training, trainings, result.run.device, text);
      }
    }
  }
  return text.str();
}

// As published; what flags replace.
TrainingSettings published_settings() {
  TrainingSettings settings;
  settings.model = "xl";
  settings.sequence_lengths = {128, 256, 512};
  settings.repetitions = {.measured = 10, .warmup = 10};
  settings.interleaved = false;
  return settings;
}
TrainingSettings quick_settings() {
  TrainingSettings settings;
  settings.model = "reduced";
  settings.sequence_lengths = {16, 64};
  settings.repetitions = {.measured = 8, .warmup = 2};
  return settings;
}
const std::map<std::string, TrainingSettings> kPresets = {
    {"quick", quick_settings()}, {"full", published_settings()}, {"paper", published_settings()}};
const PresetsInWords kInWords = {
    .quick =
        "--model reduced (xl at 1/50 of its width; caps are the same part of its gradients) "
        "--sequence-lengths 16,64 --warmup 2 --repetitions 8 --interleaved",
    .full =
        "--model xl --sequence-lengths 128,256,512 --warmup 10 --repetitions 10 --sequential; "
        "takes 80 "
        "GB and hours on a CPU, so choose a smaller --model there",
    .paper = "the same on the hardware of the published experiment, 2 GPUs in one machine"};
const Hardware kPublished = {.gpus = 2};

void run_rank(const RankContext& context, const TrainingSettings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  const Result result = train_on_ranks(settings, device_context);
  if (context.rank == 0) {
    std::fputs(training_lines(result).c_str(), stdout);
  }
  save_trace(settings, context, device_context);
}

void compute(const TrainingSettings& settings) {
  const Result result = train_at_published_scale(settings);
  std::fputs(training_lines(result).c_str(), stdout);
  save_result(settings, result);
}

// What is trained.
void add_training_flags(CLI::App& line, TrainingSettings& settings) {
  add_choice(line, "--model", settings.model, "What is trained", transformer_names());
  add_number(line, "--batch-sizes", settings.batch_sizes, "Sequences of each rank");
  add_number(line, "--sequence-lengths", settings.sequence_lengths, "Tokens of a sequence");
  add_number(line, "--bucket-mb", settings.bucket_mb,
             "Caps in MB of xl's gradients, of \"reduced\" the same part of its own");
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("Iteration time of a transformer over the size of buckets");
  TrainingSettings settings = chosen(kPresets, argc, argv), computed = published_settings();
  add_flags(line, settings, argc, argv);
  add_flags(line, settings.repetitions);
  add_resume_flag(line, settings);
  add_training_flags(line, settings);
  line.add_flag("--interleaved,!--sequential", settings.interleaved,
                "All variants interleaved, each with a model of its own; or one after another, on "
                "one model. Default: the preset's");
  CLI::App& published = add_published(line, computed, computed.cluster, argc, argv);
  add_training_flags(published, computed);
  add_shape_flag(published, computed.cluster);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (published.parsed()) {
    if (!computed.cluster.shape.empty()) {
      computed.model = c10::Join(",", computed.cluster.shape);
    }
    computed.repetitions = {};
    return run_on_cluster([&] { compute(computed); });
  }
  if (const int code = check_preset(line, settings, kPublished)) {
    return code;
  }
  if (const int code = check_memory(settings, settings.trained())) {
    return code;
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
