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

#include <c10/util/StringUtil.h>

#include <cstdio>
#include <map>

#include "experiments/bucketed_ddp/bucketed_ddp.h"
#include "harness/command_line.h"
#include "harness/resumable_rows.h"
#include "models/transformer.h"

namespace ddp {

constexpr const char* kBucketed = "bucketed";
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

const std::vector<std::string> kTrainingVariants = {kBucketed,    "naive",         "flat",
                                                    "overlapped", kReducerVariant, kComputeOnly};

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

}  // namespace ddp

namespace {

using namespace ddp;

struct Preset {
  const char* model;
  std::set<std::int64_t> sequence_lengths;
  Repetitions repetitions;
  bool interleaved;
};
const std::set<std::int64_t> kPublishedLengths = {128, 256, 512};
const std::map<std::string, Preset> kPresets = {
    {"quick", {"reduced", {16, 64}, {.measured = 8, .warmup = 2}, true}},
    {"full", {"xl", kPublishedLengths, {.measured = 10, .warmup = 10}, false}},
    {"paper", {"xl", kPublishedLengths, {.measured = 10, .warmup = 10}, false}},
    {kPublishedPreset, {"xl", kPublishedLengths, {.measured = 1, .warmup = 0}, false}},
};
const PresetsInWords kInWords = {
    .quick =
        "--model reduced (xl at 1/50 of its width; caps are the same part of its gradients) "
        "--sequence-lengths 16,64 --warmup 2 --repetitions 8 --interleaved",
    .full =
        "--model xl --sequence-lengths 128,256,512 --warmup 10 --repetitions 10 --sequential; "
        "takes 80 "
        "GB and hours on a CPU, so choose a smaller --model there",
    .paper = "the same on the hardware of the published experiment, 2 GPUs in one machine",
    .published =
        "xl at the published sizes, computed for the published hardware with the stages' code on a "
        "simulated cluster: seconds, without a GPU"};
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

void add_flags(CLI::App& line, TrainingSettings& settings) {
  add_choice(line, "--model", settings.model, "What is trained; default: the preset's",
             transformer_names());
  const auto listed = [&](const char* flag, auto& values, const char* what) {
    line.add_option(flag, values, what)->check(CLI::Range(1, 1 << 20));
  };
  listed("--batch-sizes", settings.batch_sizes, "Sequences of each rank; default: 2,4");
  listed("--sequence-lengths", settings.sequence_lengths,
         "Tokens of a sequence; default: the preset's");
  listed("--bucket-mb", settings.bucket_mb,
         "Caps in MB of xl's gradients, of \"reduced\" the same part of its own; default: "
         "1,10,100,1000");
  line.add_flag(
      "--interleaved,!--sequential", settings.interleaved,
      "All variants interleaved, each with a model of its own; or one after another, on one "
      "model. Default: the preset's");
}

// Sets from the preset what no flag has set.
void apply_preset(const CLI::App& line, TrainingSettings& settings) {
  const Preset& preset = kPresets.at(settings.preset);
  apply_preset(settings.repetitions, preset.repetitions);
  if (settings.model.empty()) {
    settings.model = preset.model;
  }
  if (settings.sequence_lengths.empty()) {
    settings.sequence_lengths = preset.sequence_lengths;
  }
  if (line.count("--interleaved") == 0) {
    settings.interleaved = preset.interleaved;
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("Iteration time of a transformer over the size of buckets");
  TrainingSettings settings;
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings.repetitions);
  add_resume_flag(line, settings);
  add_flags(line, settings);
  add_flags(line, settings.cluster, settings);
  add_shape_flag(line, settings.cluster, "With --preset published: ");
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (const std::string mistake = misplaced_flags(
          line, settings, {"--warmup", "--repetitions", "--interleaved", "--trace"});
      !mistake.empty()) {
    return refuse(line, mistake);
  }
  if (const int code = check_preset(line, settings, kPublished)) {
    return code;
  }
  apply_preset(line, settings);
  if (line.count("--shape") > 0) {
    if (settings.preset != kPublishedPreset) {
      return refuse(line, "--shape: only with --preset published");
    }
    settings.model = c10::Join(",", settings.cluster.shape);
  }
  if (settings.preset == kPublishedPreset) {
    return run_on_cluster([&] { compute(settings); });
  }
  if (const int code = check_memory(settings, settings.trained())) {
    return code;
  }
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
