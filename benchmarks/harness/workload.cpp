#include "harness/workload.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "harness/command_line.h"
#include "harness/model_summary.h"
#include "models/mlp.h"
#include "models/resnet.h"

namespace ddp {
namespace {

constexpr std::int64_t kMlpWidth = 1024;
constexpr std::size_t kMlpLayers = 8;
constexpr std::int64_t kClasses = 1000;  // the MLP has a few more outputs, which no label uses

}  // namespace

std::vector<std::string> resnet_names() {
  std::vector<std::string> names;
  for (ResNetKind kind : all_resnets()) {
    names.push_back(to_string(kind));
  }
  return names;
}

void add_flags(CLI::App& line, Workload& workload, const std::vector<std::string>& models) {
  line.add_option("--model", workload.model, "What is trained")
      ->check(CLI::IsMember(models))
      ->capture_default_str();
  const auto sized = [&](const char* flag, int& value, const char* what, int least) {
    line.add_option(flag, value, std::string(what) + "; default: the preset's")
        ->check(CLI::Range(least, 1 << 20));
  };
  sized("--batch-size", workload.size.batch, "Samples of each rank", 1);
  sized("--image-size", workload.size.image, "Pixels of an image's side", 32);
  sized("--steps", workload.size.steps, "Measured steps of each variant", 1);
  sized("--warmup", workload.size.warmup, "Steps before them", 0);
}

void apply_preset(Size& size, const Size& preset) {
  for (int Size::*field : {&Size::batch, &Size::image, &Size::steps, &Size::warmup}) {
    if (size.*field < 0) {
      size.*field = preset.*field;
    }
  }
}

std::unique_ptr<Model> make_model(const std::string& name, std::uint64_t seed, at::Device device) {
  if (name == kMlp) {
    return make_mlp(std::vector<std::int64_t>(kMlpLayers + 1, kMlpWidth), seed, device);
  }
  return make_resnet(resnet_kind(name), seed, device);
}

LabelledBatch make_batch(const Workload& workload, std::uint64_t seed,
                         const DeviceContext& device_context) {
  const auto [batch, image, steps, warmup] = workload.size;
  // The last layers of a ResNet reduce every 32x32 pixels to one.
  TORCH_CHECK_VALUE(workload.model == kMlp || batch > 1 || image > 32, "one image of ", image, "x",
                    image,
                    " leaves one value in a channel, which batch "
                    "normalization cannot train with: give --batch-size 2, or --image-size 33");
  at::Generator generator = at::detail::createCPUGenerator(seed + device_context.group->getRank());
  const std::vector<std::int64_t> shape = workload.model == kMlp
                                              ? std::vector<std::int64_t>{batch, kMlpWidth}
                                              : std::vector<std::int64_t>{batch, 3, image, image};
  return {.inputs = at::randn(shape, generator).to(device_context.device),
          .labels = at::randint(kClasses, {batch}, generator, at::kLong).to(device_context.device)};
}

Parameters describe(const Workload& workload, const std::vector<NamedTensor>& parameters) {
  const auto [batch, image, steps, warmup] = workload.size;
  return {{"model", workload.model},
          {"parameters", summarize_model(parameters).total},
          {"parameter_tensors", static_cast<std::int64_t>(parameters.size())},
          {"batch_size", batch},
          {"image_size", image},
          {"steps", steps},
          {"warmup", warmup}};
}

}  // namespace ddp
