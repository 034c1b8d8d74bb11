// Stage 01: what one all-reduce per parameter costs beside one for all of them, on ResNet's real
// parameter list.
//
// Three variants take turns, step by step, each on a model of its own: naive DDP, flat DDP, and the
// same training without communication. Ranks start each part of a step together, so that what is
// called communication contains no waiting for a slower rank. A part's time is that of the slowest
// rank.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <cstdio>
#include <map>

#include "01_naive_ddp/naive_ddp.h"
#include "command_line.h"
#include "ddp/benchmark.h"
#include "ddp/device_timer.h"
#include "ddp/progress.h"
#include "ddp/resnet.h"

namespace {

using namespace ddp;

constexpr std::array kVariants = {"compute only", "naive", "flat"};
constexpr std::array kPhases = {"forward", "backward", "communication", "optimizer"};
constexpr double kLearningRate = 0.01;

using StepTimes = std::array<double, kPhases.size()>;  // seconds

struct Size {
  int batch;  // images of a rank
  int image;  // pixels of a side
  int steps;
  int warmup;
};

const std::map<std::string, Size> kPresets = {
    {"quick", {4, 64, 10, 2}},
    {"full", {8, 128, 30, 3}},
    {"paper", {32, 224, 50, 5}},
};

struct Settings : BenchmarkOptions {
  std::string model = "resnet50";
  Size size{-1, -1, -1, -1};  // negative: the preset's
};

// The calls must stay calls: the address of a stage's function is not known before its library is
// loaded.
std::unique_ptr<GradientSynchronizer> make_synchronizer(std::string_view variant,
                                                        const Model& model,
                                                        const ProcessGroupPtr& group) {
  const auto parameters = tensors_of(model.named_parameters());
  const auto buffers = tensors_of(model.named_buffers());
  if (variant == "naive") {
    return make_naive_ddp(parameters, buffers, group);
  }
  if (variant == "flat") {
    return make_flat_ddp(parameters, buffers, group);
  }
  return nullptr;
}

class Trainer {
 public:
  Trainer(std::string_view variant, std::unique_ptr<Model> model, const Workplace& workplace)
      : model_(std::move(model)),
        parameters_(tensors_of(model_->named_parameters())),
        group_(workplace.group),
        timer_(make_device_timer(workplace.device)),
        synchronizer_(make_synchronizer(variant, *model_, group_)) {}

  StepTimes step(const at::Tensor& images, const at::Tensor& labels) {
    at::Tensor loss;
    return {
        timed([&] { loss = at::cross_entropy_loss(model_->forward(images), labels); }),
        timed([&] { loss.backward(); }),
        timed([&] { synchronize(); }),
        timed([&] { update(); }),
    };
  }

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  double timed(const std::function<void()>& part) {
    barrier(group_);
    timer_->start();
    part();
    timer_->stop();
    return timer_->seconds();
  }

  void synchronize() {
    if (synchronizer_) {
      synchronizer_->finish();
    }
  }

  // Plain SGD.
  void update() {
    at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters_) {
      parameter.sub_(parameter.grad(), kLearningRate);
      parameter.mutable_grad().reset();
    }
  }

  std::unique_ptr<Model> model_;
  std::vector<at::Tensor> parameters_;
  ProcessGroupPtr group_;
  std::unique_ptr<DeviceTimer> timer_;
  std::unique_ptr<GradientSynchronizer> synchronizer_;
};

// [steps, variants, phases]: seconds of this rank, warm-up excluded.
at::Tensor measure(const Settings& settings, const Workplace& workplace,
                   std::vector<Trainer>& trainers) {
  const int rank = workplace.group->getRank();
  const auto [batch, image, steps, warmup] = settings.size;
  at::Generator generator = at::detail::createCPUGenerator(settings.seed + rank);
  const at::Tensor images = at::randn({batch, 3, image, image}, generator).to(workplace.device);
  const at::Tensor labels = at::randint(1000, {batch}, generator, at::kLong).to(workplace.device);

  at::Tensor times = at::empty({steps, kVariants.size(), kPhases.size()}, at::kDouble);
  std::optional<Progress> progress;
  if (rank == 0) {
    progress.emplace("naive_vs_flat, rounds", warmup + steps);
  }
  for (int round = 0; round < warmup + steps; ++round) {
    for (std::size_t turn = 0; turn < kVariants.size(); ++turn) {
      // Who goes first changes, so that nobody always follows the same one.
      const std::size_t variant = (round + turn) % kVariants.size();
      const StepTimes step = trainers[variant].step(images, labels);
      if (round >= warmup) {
        times[round - warmup][variant].copy_(at::tensor(step));
      }
    }
    if (progress) {
      progress->advance();
    }
  }
  return times;
}

Series series_of(const at::Tensor& times, std::size_t variant, std::size_t phase) {
  const at::Tensor values = times.select(1, static_cast<std::int64_t>(variant))
                                .select(1, static_cast<std::int64_t>(phase))
                                .contiguous();
  return {.labels = {{"variant", kVariants[variant]}, {"phase", kPhases[phase]}},
          .unit = "s",
          .values = {values.const_data_ptr<double>(),
                     values.const_data_ptr<double>() + values.numel()}};
}

Result to_result(const Settings& settings, const at::Tensor& times, const ProcessGroupPtr& group,
                 const std::vector<at::Tensor>& parameters) {
  const auto [batch, image, steps, warmup] = settings.size;
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : parameters) {
    elements += parameter.numel();
  }
  Result result = {
      .run = to_run(settings, "naive_vs_flat", group),
      .parameters = {{"model", settings.model},
                     {"parameters", elements},
                     {"parameter_tensors", static_cast<std::int64_t>(parameters.size())},
                     {"batch_size", batch},
                     {"image_size", image},
                     {"steps", steps},
                     {"warmup", warmup},
                     {"rate_gbit", settings.rate_gbit}},
      .series = {}};
  for (std::size_t variant = 0; variant < kVariants.size(); ++variant) {
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      result.series.push_back(series_of(times, variant, phase));
    }
  }
  return result;
}

void print_table(const Result& result) {
  std::printf("%-14s", "median [ms]");
  for (const char* phase : kPhases) {
    std::printf("%15s", phase);
  }
  std::printf("%15s\n", "sum");
  for (std::size_t variant = 0; variant < kVariants.size(); ++variant) {
    std::printf("%-14s", kVariants[variant]);
    double sum = 0;
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      const double milliseconds =
          1e3 * summarize(result.series[variant * kPhases.size() + phase].values).p50;
      sum += milliseconds;
      std::printf("%15.1f", milliseconds);
    }
    std::printf("%15.1f\n", sum);
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (ResNetKind kind : all_resnets()) {
    names.push_back(to_string(kind));
  }
  return names;
}

void apply_preset(Settings& settings) {
  const Size& preset = kPresets.at(settings.preset);
  for (int Size::*field : {&Size::batch, &Size::image, &Size::steps, &Size::warmup}) {
    if (settings.size.*field < 0) {
      settings.size.*field = preset.*field;
    }
  }
}

void run_rank(const RankContext& context, const Settings& settings) {
  const Workplace workplace = make_workplace(settings, context);
  std::vector<Trainer> trainers;
  trainers.reserve(kVariants.size());
  for (std::string_view variant : kVariants) {
    trainers.emplace_back(variant,
                          make_resnet(resnet_kind(settings.model), settings.seed, workplace.device),
                          workplace);
  }
  at::Tensor times = measure(settings, workplace, trainers).to(workplace.device);
  all_reduce(times, workplace.group, ReduceOp::kMax);
  if (context.rank == 0) {
    const Result result =
        to_result(settings, times.cpu(), workplace.group, trainers.front().parameters());
    save_result(settings, result);
    print_table(result);
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App app("Naive against flat DDP: where the time of a step goes");
  Settings settings;
  add_flags(app, settings, argc, argv);
  app.add_option("--model", settings.model, "What is trained")
      ->check(CLI::IsMember(model_names()))
      ->capture_default_str();
  const auto sized = [&](const char* flag, int& value, const char* what, int least) {
    app.add_option(flag, value, std::string(what) + "; default: the preset's")
        ->check(CLI::Range(least, 1 << 20));
  };
  sized("--batch-size", settings.size.batch, "Images of each rank", 1);
  sized("--image-size", settings.size.image, "Pixels of a side", 32);
  sized("--steps", settings.size.steps, "Measured steps of each variant", 1);
  sized("--warmup", settings.size.warmup, "Steps before them", 0);
  CLI11_PARSE(app, argc, argv);
  apply_preset(settings);
  return run_benchmark(settings, "01_naive_ddp",
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
