#include "models/profiles/model_profile.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace ddp {
namespace {

struct Tile {
  std::int64_t rows, columns;
  double pace;  // of tensor cores, beside that of the largest, which reads each operand least often
};
constexpr Tile kTiles[] = {{256, 128, 1}, {128, 128, 1}, {128, 64, 0.87}, {64, 64, 0.74}};

// As many operations as whole tiles for all multiprocessors have, in as many waves as there are:
// what a product costs that does not fill them. Of the tiles of cuBLAS the best is taken. Source:
// NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization; its figures
// of tiles' efficiency.
double operations_of(const Product& product, const cluster::Device& device) {
  const std::int64_t multiprocessors = device.multiprocessors;
  if (multiprocessors == 0) {
    return static_cast<double>(product.flops());
  }
  const auto parts = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [rows, columns, pace] : kTiles) {
    const std::int64_t tiles =
        product.count * parts(product.rows, rows) * parts(product.columns, columns);
    const std::int64_t places = parts(tiles, multiprocessors) * multiprocessors;
    least = std::min(least, 2 * static_cast<double>(places * rows * columns * product.inner) /
                                (device.tensor_cores ? pace : 1));
  }
  return least;
}

// One operator after the other: each matrix product, and whatever else there is, as one.
std::int64_t time_of(cluster::Device device, const Work& work, double efficiency,
                     double memory_efficiency) {
  device.flops_per_second *= efficiency;
  device.bytes_per_second *= memory_efficiency > 0 ? memory_efficiency : efficiency;
  Work rest = work;
  std::int64_t sum = 0;
  for (const Product& one : work.products) {
    rest.flops -= one.flops();
    rest.bytes -= one.bytes();
    sum +=
        cluster::operator_ns(device, operations_of(one, device), static_cast<double>(one.bytes()));
  }
  return sum + cluster::operator_ns(device, static_cast<double>(rest.flops),
                                    static_cast<double>(rest.bytes));
}

}  // namespace

std::int64_t ParameterShape::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t ModelProfile::elements() const {
  std::int64_t sum = 0;
  for (const ParameterShape& parameter : parameters) {
    sum += parameter.elements();
  }
  return sum;
}

Work optimizer_work(const ModelProfile& model, int states) {
  return moving((3 + 2 * states) * model.elements());
}

Work moving(std::int64_t n, std::int64_t kernels) {
  return {.bytes = n * std::int64_t{sizeof(float)}, .kernels = kernels};
}

std::int64_t Product::bytes() const {
  return moving(count * (rows * inner + inner * columns + rows * columns)).bytes;
}

Work& Work::operator+=(const Work& other) {
  flops += other.flops;
  bytes += other.bytes;
  kernels += other.kernels;
  products.insert(products.end(), other.products.begin(), other.products.end());
  return *this;
}

Work product(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, std::int64_t count) {
  const Product one{.rows = rows, .inner = inputs, .columns = outputs, .count = count};
  return {.flops = one.flops(), .bytes = one.bytes(), .kernels = 1, .products = {one}};
}

ProfiledModel::ProfiledModel(ModelProfile profile) : profile_(std::move(profile)) {
  for (const auto& [name, sizes] : profile_.parameters) {
    parameters_.push_back({name, cluster::make_parameter(sizes)});
  }
}

std::vector<cluster::TimedLayer> ProfiledModel::timed_layers(const cluster::Device& device,
                                                             const Pace& pace) const {
  const double forward = pace.forward_efficiency, backward = pace.backward_efficiency;
  TORCH_CHECK_VALUE(forward > 0 && backward > 0, "the efficiencies of a GPU are above 0, not ",
                    forward, " and ", backward);
  std::vector<cluster::TimedLayer> layers;
  layers.reserve(profile_.layers.size());
  for (const ProfiledLayer& layer : profile_.layers) {
    cluster::TimedLayer& timed = layers.emplace_back();
    timed.name = layer.name;
    const auto time = [&](const Work& work, double efficiency) {
      return time_of(device, work, efficiency, pace.memory_efficiency) +
             std::llround(pace.kernel_ns * static_cast<double>(work.kernels));
    };
    timed.forward_ns = time(layer.forward, forward);
    timed.backward_ns = time(layer.backward, backward);
    timed.forward_kernels = layer.forward.kernels;
    timed.backward_kernels = layer.backward.kernels;
    timed.activation_bytes = moving(layer.kept).bytes;
    for (const std::size_t parameter : layer.parameters) {
      timed.parameters.push_back(parameters_.at(parameter).tensor);
    }
  }
  return layers;
}

at::Tensor ProfiledModel::forward(const at::Tensor&) {
  TORCH_CHECK(false, profile_.name,
              " is a profile here, with shapes and no values: it takes time, "
              "and computes nothing");
}

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

namespace {

// What an element costs that is copied to where it is in a transposed matrix, in elements read or
// written one after the other: 2 at a third of the speed (32 % of a copy's, measured by Jang,
// "CUDA image transposed": naive, without shared memory, as PyTorch's copies of any strides are).
constexpr std::int64_t kTransposed = 6;

class TransformerBuilder {
 public:
  TransformerBuilder(const std::string& name, const TransformerShape& shape,
                     const SequenceBatch& sequences)
      : shape_(shape), sequences_(sequences), tokens_(sequences.batch * sequences.length) {
    profile_.name = name;
    list_parameters();
  }

  ModelProfile build() {
    embed();
    for (std::int64_t i = 0; i < shape_.layers; ++i) {
      add_block(i);
    }
    normalize(next_++);
    linear(next_++, shape_.d_model, shape_.vocabulary);
    return std::move(profile_);
  }

 private:
  // The order of a block's parameters, and the number of its first one.
  enum Member : std::uint8_t {
    kQuery,
    kKey,
    kValue,
    kOutput,
    kW1,
    kW2,
    kW3,
    kNorm1,
    kNorm2,
    kCount
  };

  void list_parameters() {
    const auto [d, d_ff, layers, heads, vocabulary] = shape_;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> sizes) {
      profile_.parameters.push_back({name + ".weight", std::move(sizes)});
    };
    add("token_embeddings", {vocabulary, d});
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string prefix = "layers." + std::to_string(i) + ".";
      for (const char* name : {"attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.output_proj"}) {
        add(prefix + name, {d, d});
      }
      add(prefix + "ffn.w1", {d_ff, d});
      add(prefix + "ffn.w2", {d, d_ff});
      add(prefix + "ffn.w3", {d_ff, d});
      add(prefix + "ln1", {d});
      add(prefix + "ln2", {d});
    }
    add("ln_final", {d});
    add("lm_head", {vocabulary, d});
  }

  // Elements of one value for each token and each of `width` places.
  std::int64_t wide(std::int64_t width) const { return tokens_ * width; }

  ProfiledLayer& add(std::size_t parameter) {
    const std::string& name = profile_.parameters[parameter].name;
    return profile_.layers.emplace_back(
        ProfiledLayer{name.substr(0, name.rfind('.')), {parameter}, {}, {}});
  }

  void embed() {
    ProfiledLayer& layer = add(next_++);
    layer.forward = moving(2 * wide(shape_.d_model));
    layer.kept = wide(2);  // which tokens
    // The whole gradient is set to zero, then the tokens' rows are added.
    layer.backward = moving(shape_.vocabulary * shape_.d_model + 3 * wide(shape_.d_model), 2);
  }

  // As written in PyTorch: forward squares (2), averages (1), adds epsilon, takes the root, and scales
  // by both (2 + 2). Backward: of scaling 2 and 4 for the weight, 2 and 4 for the root, of averaging
  // 1, of squaring 7, the sum of both ways to x 3.
  void normalize(std::size_t parameter) {
    ProfiledLayer& layer = add(parameter);
    layer.forward = moving(7 * wide(shape_.d_model), 6);
    layer.backward = moving(23 * wide(shape_.d_model), 14);
    layer.kept =
        wide(2 * shape_.d_model + 1);  // the input, the same scaled by the root, and the root
  }

  // einsum's gradient of a weight is laid out as [inputs, outputs]: autograd copies it to the weight's
  // own layout. The input is kept, once for all that have the same.
  ProfiledLayer& linear(std::size_t parameter, std::int64_t inputs, std::int64_t outputs,
                        bool keeps = true) {
    ProfiledLayer& layer = add(parameter);
    layer.forward = product(tokens_, inputs, outputs);
    layer.backward = product(tokens_, outputs, inputs);
    layer.backward += product(inputs, tokens_, outputs);
    layer.backward += moving(kTransposed * inputs * outputs);
    layer.kept = keeps ? wide(inputs) : 0;
    return layer;
  }

  // Rotations of queries and keys, scores, mask, softmax, and the mixed values; no parameters.
  // Scores are moved by each operator of the text-book's attention, as published programs have it:
  // forward scales (2), masks (2), finds the maximum (1), subtracts it (2), exponentiates (2), sums
  // (1), divides (2). Their backwards: of dividing 2 and, for the sum, 10 (two quotients, negation,
  // product, reduction), of summing 2, of exponentiating 3, of subtracting 3 (negation, reduction),
  // of the maximum 4 (zeros, addition), of masking 2, of scaling 2. Queries and keys are rotated by
  // halves: four products, a difference, a sum, both together (9); values and what they are mixed to
  // change their layout (2 + 2). Backward of a rotation: 10, of layouts 8.
  void attend(const std::string& name) {
    const auto [batch, length] = sequences_;
    const std::int64_t heads = batch * shape_.heads, size = shape_.d_model / shape_.heads;
    const std::int64_t scores = heads * length * length;
    ProfiledLayer& layer = profile_.layers.emplace_back(ProfiledLayer{name, {}, {}, {}});
    layer.forward = moving(22 * wide(shape_.d_model) + 12 * scores, 23);
    layer.forward += product(length, size, length, heads);
    layer.forward += product(length, length, size, heads);
    // Both operands of each product, and the exponentials before they were divided.
    layer.kept = 3 * wide(shape_.d_model) + 2 * scores;
    layer.backward = moving(28 * wide(shape_.d_model) + 28 * scores, 38);
    for (const Work& of_one :
         {product(length, size, length, heads), product(length, length, size, heads)}) {
      layer.backward += of_one;
      layer.backward += of_one;
    }
  }

  // x += branch; in backward the gradients of both meet where the branch began.
  static void join(ProfiledLayer& layer, std::int64_t elements) {
    layer.forward += moving(3 * elements);
    layer.backward += moving(3 * elements);
  }

  void add_block(std::int64_t index) {
    const std::size_t first = next_;
    const std::int64_t d = shape_.d_model, d_ff = shape_.d_ff;
    next_ += kCount;
    normalize(first + kNorm1);
    for (const Member member : {kQuery, kKey, kValue}) {
      linear(first + member, d, d, /*keeps=*/member == kQuery);
    }
    attend("layers." + std::to_string(index) + ".attn");
    join(linear(first + kOutput, d, d), wide(d));
    normalize(first + kNorm2);
    linear(first + kW1, d, d_ff);
    ProfiledLayer& gated = linear(first + kW3, d, d_ff, /*keeps=*/false);
    gated.kept = 3 * wide(d_ff);                 // silu's input, and what is multiplied
    gated.forward += moving(5 * wide(d_ff), 2);  // silu, and the product of both
    gated.backward += moving(9 * wide(d_ff), 3);
    join(linear(first + kW2, d_ff, d), wide(d));
  }

  const TransformerShape shape_;
  const SequenceBatch sequences_;
  const std::int64_t tokens_;
  std::size_t next_ = 0;  // the first parameter that no layer has yet
  ModelProfile profile_;
};

}  // namespace

ModelProfile transformer_profile(const std::string& name, const TransformerShape& shape,
                                 const SequenceBatch& sequences) {
  const auto [d_model, d_ff, layers, heads, vocabulary] = shape;
  TORCH_CHECK_VALUE(
      std::min({d_model, d_ff, layers, heads, vocabulary, sequences.batch, sequences.length}) > 0,
      "a transformer's shape, batch and sequences are positive numbers, but the batch is ",
      sequences.batch, " of ", sequences.length, " tokens, and the shape ", d_model, ", ", d_ff,
      ", ", layers, ", ", heads, ", ", vocabulary);
  return TransformerBuilder(name, shape, sequences).build();
}

}  // namespace ddp
