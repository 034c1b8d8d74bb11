#include "harness/workload.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdio>

#include "harness/command_line.h"
#include "models/resnet.h"
#include "models/small_models.h"

namespace ddp {
namespace {

std::string shape_in_words(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text.empty() ? "scalar" : text;
}

constexpr std::int64_t kMlpWidth = 1024;
constexpr std::size_t kMlpLayers = 8;
constexpr std::int64_t kClasses = 1000;  // the MLP has a few more outputs, which no label uses

}  // namespace

ModelSummary summarize_model(const std::vector<NamedTensor>& parameters) {
  ModelSummary summary;
  for (const auto& [name, parameter] : parameters) {
    const std::int64_t elements = parameter.numel();
    ++summary.tensors;
    summary.total += elements;
    summary.trainable += parameter.requires_grad() ? elements : 0;
    if (elements > summary.largest_elements) {
      summary.largest = name;
      summary.largest_shape = shape_in_words(parameter);
      summary.largest_elements = elements;
    }
  }
  return summary;
}

Parameters describe(const ModelSummary& summary) {
  return {{"parameters", summary.total},
          {"trainable_parameters", summary.trainable},
          {"parameter_tensors", summary.tensors},
          {"largest_parameter", summary.largest},
          {"largest_parameter_shape", summary.largest_shape},
          {"largest_parameter_elements", summary.largest_elements}};
}

void print(const std::string& model, const ModelSummary& summary) {
  std::printf("%s\n", model.c_str());
  const auto line = [](const char* what, std::int64_t elements, const std::string& note) {
    std::printf("  %-22s%12ld = %6.2fM%s\n", what, elements,
                static_cast<double>(elements) / (1 << 20), note.c_str());
  };
  line("total parameters", summary.total, " in " + std::to_string(summary.tensors) + " tensors");
  line("trainable parameters", summary.trainable, "");
  line("largest parameter", summary.largest_elements,
       ", " + summary.largest + ", " + summary.largest_shape);
  std::fflush(stdout);  // before anything printed while measuring
}

void add_flags(CLI::App& line, Workload& workload, const std::vector<std::string>& models) {
  Size& size = workload.size;
  add_choice(line, "--model", workload.model, "What is trained", models);
  add_number_of_preset(line, "--batch-size", size.batch, "Samples of each rank");
  add_number_of_preset(line, "--image-size", size.image, "Pixels of an image's side", 32);
  add_number_of_preset(line, "--steps", size.steps, "Measured steps of each variant");
  add_number_of_preset(line, "--warmup", size.warmup, "Steps before them", 0);
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
  return make_resnet(name, seed, device);
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
