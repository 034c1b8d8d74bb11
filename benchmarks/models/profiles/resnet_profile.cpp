#include <c10/util/Exception.h>

#include <utility>

#include "models/profiles/model_profile.h"

namespace ddp {
namespace {

// A feature map: n images of `channels` channels of side x side.
struct Map {
  std::int64_t images, channels, side;
  std::int64_t elements() const { return images * channels * side * side; }
};

struct Convolution {
  std::int64_t outputs, kernel, stride = 1, groups = 1;
};

// Appends layers in the order of forward, which is also that of the parameters.
class ResNetBuilder {
 public:
  ResNetBuilder(std::string name, const Map& input)
      : profile_{std::move(name), {}, {}}, map_(input) {}

  Map map() const { return map_; }
  ModelProfile take() { return std::move(profile_); }

  // To a feature map of its own, by which a branch continues from the given one.
  void convolve(const std::string& name, Map input, const Convolution& convolution) {
    const auto [outputs, kernel, stride, groups] = convolution;
    map_ = {input.images, outputs, (input.side - 1) / stride + 1};  // the padding is kernel / 2
    const std::vector<std::int64_t> sizes = {outputs, input.channels / groups, kernel, kernel};
    ProfiledLayer& layer = add(name, {{"weight", sizes}});
    const std::int64_t weights = profile_.parameters.back().elements();
    Work pass = moving(input.elements() + weights + map_.elements());
    pass.flops = 2 * map_.elements() * (weights / outputs);
    layer.forward = pass;
    layer.backward = pass;  // of the weight
    if (profile_.layers.size() > 1) {
      layer.backward += pass;  // of the input
    }
  }

  // Statistics, then the normalized values; in backward two sums, then the gradient.
  ProfiledLayer& normalize(const std::string& name) {
    ProfiledLayer& layer = add(name, {{"weight", {map_.channels}}, {"bias", {map_.channels}}});
    layer.forward = moving(3 * map_.elements());
    layer.backward = moving(5 * map_.elements());
    return layer;
  }

  // In place. Backward reads gradient and output.
  void rectify() {
    last().forward += moving(2 * map_.elements());
    last().backward += moving(3 * map_.elements());
  }

  // Adds another branch, in place; backward adds the two branches' gradients of their input.
  void add_branch(const Map& input) {
    last().forward += moving(3 * map_.elements());
    last().backward += moving(3 * input.elements());
  }

  // Max pooling of 3x3 with stride 2 and padding 1, which keeps int64 indices.
  void max_pool() { pool((map_.side - 1) / 2 + 1, /*outputs=*/3); }

  void average_pool() { pool(/*side=*/1, /*outputs=*/1); }

  void classify(const std::string& name, std::int64_t classes) {
    const std::int64_t inputs = map_.channels;
    ProfiledLayer& layer = add(name, {{"weight", {classes, inputs}}, {"bias", {classes}}});
    layer.forward = product(map_.images, inputs, classes);
    layer.backward = product(map_.images, classes, inputs);
    layer.backward += product(inputs, map_.images, classes);
  }

 private:
  // To that side. Each element of the result is moved so many times.
  void pool(std::int64_t side, std::int64_t outputs) {
    const Map input = std::exchange(map_, {map_.images, map_.channels, side});
    const Work pass = moving(input.elements() + outputs * map_.elements());
    last().forward += pass;
    last().backward += pass;
  }

  ProfiledLayer& last() { return profile_.layers.back(); }

  ProfiledLayer& add(const std::string& name, const std::vector<ParameterShape>& parameters) {
    ProfiledLayer& layer = profile_.layers.emplace_back();
    layer.name = name;
    for (const ParameterShape& parameter : parameters) {
      layer.parameters.push_back(profile_.parameters.size());
      profile_.parameters.push_back({name + "." + parameter.name, parameter.sizes});
    }
    return layer;
  }

  ModelProfile profile_;
  Map map_;
};

void add_block(ResNetBuilder& builder, const std::string& name, const ResNetShape& shape, int stage,
               std::int64_t stride) {
  const std::int64_t planes = 64 << stage;
  const std::int64_t width = planes * shape.width_per_group / 64 * shape.groups;
  const std::int64_t outputs = planes * kResNetExpansion;
  const Map input = builder.map();
  builder.convolve(name + ".conv1", input, {.outputs = width, .kernel = 1});
  builder.normalize(name + ".bn1");
  builder.rectify();
  builder.convolve(name + ".conv2", builder.map(),
                   {.outputs = width, .kernel = 3, .stride = stride, .groups = shape.groups});
  builder.normalize(name + ".bn2");
  builder.rectify();
  builder.convolve(name + ".conv3", builder.map(), {.outputs = outputs, .kernel = 1});
  builder.normalize(name + ".bn3");
  if (stride != 1 || input.channels != outputs) {
    builder.convolve(name + ".downsample.0", input,
                     {.outputs = outputs, .kernel = 1, .stride = stride});
    builder.normalize(name + ".downsample.1");
  }
  builder.add_branch(input);
  builder.rectify();
}

}  // namespace

ModelProfile resnet_profile(const std::string& name, const ImageBatch& images) {
  TORCH_CHECK_VALUE(images.batch > 0 && images.side >= 32,
                    "a ResNet's batch is positive and its images' sides are at least 32, not ",
                    images.batch, " and ", images.side);
  const ResNetShape shape = resnet_shape(name);
  ResNetBuilder builder(name, {images.batch, 3, images.side});
  builder.convolve("conv1", builder.map(), {.outputs = 64, .kernel = 7, .stride = 2});
  builder.normalize("bn1");
  builder.rectify();
  builder.max_pool();
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 0; block < shape.blocks[stage]; ++block) {
      const std::string layer = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      add_block(builder, layer, shape, stage, stage > 0 && block == 0 ? 2 : 1);
    }
  }
  builder.average_pool();
  builder.classify("fc", kResNetClasses);
  return builder.take();
}

}  // namespace ddp
