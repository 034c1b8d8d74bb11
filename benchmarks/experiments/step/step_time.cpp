// Stages 01 to 03: how long a training step takes with each variant, compared with libtorch's own
// c10d::Reducer and with computing alone; with --apart, where its time goes; with --optimizer adamw,
// optimizers that are sharded beside one that is not.
//
// Source: the deliverables of stages 01 and 02; nothing was published. A step's time is that of the
// slowest rank. Variants are compared within a repetition, so that a machine that is sometimes busy
// hardly disturbs the ratios. With --apart ranks start each part of a step together, so that the
// communication time contains no waiting for a slower rank.
#include <torch/optim/adamw.h>

#include "experiments/step/step.h"
#include "models/resnet.h"

namespace ddp {
namespace {

constexpr int kMlpBatch = 64;  // for all presets
constexpr double kAdamRate = 1e-3;

StepSettings step_defaults(const std::string& preset) {
  StepSettings settings;
  settings.workload = {kMlp, {.batch = 4, .image = 32, .steps = 5, .warmup = 2}};
  if (preset == "full") {
    settings.workload.size = {.batch = 8, .image = 128, .steps = 30, .warmup = 3};
  } else if (preset == "paper") {
    settings.workload.size = {.batch = 32, .image = 224, .steps = 50, .warmup = 5};
  }
  settings.timed = {{"step", Part::kForward, Part::kUpdate, /*together=*/true},
                    {"finish", Part::kFinish, Part::kFinish}};
  settings.trainer.first_bucket_bytes = 0;  // the cap, as bucketed has it
  return settings;
}

void add_step_flags(CLI::App& line, StepSettings& settings) {
  std::vector<std::string> models = resnet_names();
  models.emplace_back(kMlp);
  add_flags(line, settings.workload, models);
  line.add_option("--variants", settings.variants, "What is measured; default: all");
  line.add_flag("--apart", settings.apart, "Times the parts of a step, each begun by all together");
  add_choice(line, "--optimizer", settings.optimizer,
             "adamw: what averages gradients or updates shards, with AdamW; of the mlp",
             {"sgd", "adamw"});
  line.add_option("--cap-bytes", settings.trainer.cap_bytes, "A bucket's: bucketed and Reducer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  line.add_option("--first-bucket-bytes", settings.trainer.first_bucket_bytes,
                  "The Reducer's first bucket; 1048576 is PyTorch's default, 0 the cap")
      ->check(CLI::NonNegativeNumber)
      ->default_str("the cap");
  line.add_flag("--zero-gradients", settings.trainer.zero_gradients,
                "Set gradients to zero after a step instead of to none");
}

std::string settle_step(const CLI::App& line, StepSettings& settings) {
  const bool mlp = settings.workload.model == kMlp, adamw = settings.optimizer == "adamw";
  if (mlp) {
    settings.workload.size.image = 0;
    if (line.count("--batch-size") == 0) {
      settings.workload.size.batch = kMlpBatch;
    }
  }
  if (settings.variants.empty()) {
    settings.variants = adamw ? variants_with_optimizer() : all_variants();
  }
  TrainerOptions& trainer = settings.trainer;
  if (trainer.first_bucket_bytes == 0) {
    trainer.first_bucket_bytes = trainer.cap_bytes;
  }
  if (adamw) {
    trainer.optimizer = [](std::vector<at::Tensor> parameters) {
      return std::make_unique<torch::optim::AdamW>(std::move(parameters), kAdamRate);
    };
  }
  if (settings.apart) {
    settings.timed.clear();
    for (const auto& [name, part] :
         {std::pair("forward", Part::kForward), std::pair("backward", Part::kBackward),
          std::pair("communication", Part::kFinish), std::pair("optimizer", Part::kUpdate)}) {
      settings.timed.push_back({name, part, part, /*together=*/true, /*waited=*/true});
    }
  }
  return adamw && !mlp ? "--optimizer adamw: what is sharded are the layers of --model mlp" : "";
}

std::vector<Comparison> step_rows(const StepSettings& settings, const std::vector<int>&) {
  Comparison row = {.workload = settings.workload};
  for (const std::string& variant : settings.variants) {
    row.ways.push_back({variant, settings.trainer, {{"variant", variant}}});
  }
  return {row};
}

Parameters step_parameters(const StepSettings& settings, const std::vector<Comparison>&) {
  const auto model = make_model(settings.workload.model, settings.seed, at::kCPU);
  const TrainerOptions& trainer = settings.trainer;
  return joined(describe(settings.workload, model->named_parameters()),
                {{"rate_gbit", settings.rate_gbit},
                 {"latency_us", settings.latency_us},
                 {"optimizer", settings.optimizer},
                 {"cap_bytes", trainer.cap_bytes},
                 {"first_bucket_bytes", trainer.first_bucket_bytes},
                 {"zero_gradients", std::int64_t{trainer.zero_gradients}}});
}

}  // namespace

StepExperiment step_time() {
  return {
      .name = "step_time",
      .about = "A step with each way of averaging gradients, or its parts: stages 01 to 03",
      .presets = {.quick = "2 steps to warm up, 5 measured; ResNets on 4 images of 32x32 a rank",
                  .full = "3 and 30 steps; ResNets on 8 images of 128x128",
                  .paper = "5 and 50 steps; ResNets on 32 images of 224x224, on 2 GPUs. The MLP "
                           "has 64 samples a rank with each preset"},
      .defaults = step_defaults,
      .add_flags = add_step_flags,
      .settle = settle_step,
      .rows = step_rows,
      .parameters = step_parameters};
}

}  // namespace ddp
