#include "models/transformer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "models/named.h"

namespace ddp {
namespace {

using at::Tensor;

constexpr double kEpsilon = 1e-5;
constexpr double kRotationBase = 10'000;
constexpr double kCutOff = 3;  // standard deviations

constexpr TransformerShape kXl = {.d_model = 1600, .d_ff = 6400, .layers = 48, .heads = 25};

struct NamedShape {
  const char* name = nullptr;
  TransformerShape shape = {};
};
constexpr NamedShape kShapes[] = {
    {"small", {.d_model = 768, .d_ff = 3072, .layers = 12, .heads = 12}},
    {"medium", {.d_model = 1024, .d_ff = 4096, .layers = 24, .heads = 16}},
    {"large", {.d_model = 1280, .d_ff = 5120, .layers = 36, .heads = 20}},
    {"xl", kXl},
    {"reduced",
     {.d_model = kXl.d_model / 50,
      .d_ff = kXl.d_ff / 50,
      .layers = kXl.layers,
      .heads = 2,
      .vocabulary = kXl.vocabulary / 50}},
};

void check(const TransformerShape& shape) {
  const auto [d_model, d_ff, layers, heads, vocabulary] = shape;
  TORCH_CHECK_VALUE(
      std::min({d_model, d_ff, layers, heads, vocabulary}) > 0,
      "a transformer's d_model, d_ff, layers, heads and vocabulary are positive, not ", d_model,
      ", ", d_ff, ", ", layers, ", ", heads, ", ", vocabulary);
  TORCH_CHECK_VALUE(d_model % (2 * heads) == 0,
                    "a transformer's d_model is its heads times an even number, but d_model is ",
                    d_model, " and there are ", heads, " heads");
}

// Rotates the pairs of neighbouring elements of x, [n, length, heads, size], as complex numbers, by
// `rotation`, [length, 1, size / 2].
Tensor rotate(const Tensor& x, const Tensor& rotation) {
  const Tensor pairs = at::view_as_complex(x.unflatten(-1, {-1, 2}));
  return at::view_as_real(pairs * rotation).flatten(-2);
}

// Pair k of token i is rotated by i / base^(2k / size).
Tensor rotation_of(std::int64_t length, std::int64_t size, const at::Device& device) {
  const auto options = at::device(device).dtype(at::kFloat);
  const Tensor exponents = at::arange(0, size, 2, options) / static_cast<double>(size);
  const Tensor angles = at::outer(at::arange(length, options), at::pow(kRotationBase, -exponents));
  return at::polar(at::ones_like(angles), angles).unsqueeze(1);
}

struct Block {
  Tensor query, key, value, output;  // [d_model, d_model]
  Tensor w1, w2, w3;                 // w2: [d_model, d_ff], the others [d_ff, d_model]
  Tensor attention_norm, feed_forward_norm;
};

class Transformer : public Model {
 public:
  Transformer(const TransformerShape& shape, const TransformerOptions& options)
      : shape_(shape), options_(options), generator_(at::detail::createCPUGenerator(options.seed)) {
    check(shape_);
    const auto [d_model, d_ff, layers, heads, vocabulary] = shape_;
    embedding_ = add("token_embeddings.weight", random({vocabulary, d_model}, 1));
    layers_.reserve(layers);
    for (std::int64_t i = 0; i < layers; ++i) {
      layers_.push_back(add_layer("layers." + std::to_string(i) + "."));
    }
    final_norm_ = add_norm("ln_final.weight");
    head_ = add_linear("lm_head.weight", d_model, vocabulary);
  }

  Tensor forward(const Tensor& tokens) override {
    Tensor x = at::embedding(embedding_, tokens);
    const Tensor rotation =
        rotation_of(tokens.size(1), shape_.d_model / shape_.heads, tokens.device());
    for (const Block& layer : layers_) {
      x = x + attention(norm(x, layer.attention_norm), layer, rotation);
      x = x + feed_forward(norm(x, layer.feed_forward_norm), layer);
    }
    return at::linear(norm(x, final_norm_), head_);
  }

  std::vector<NamedTensor> named_parameters() const override { return parameters_; }
  std::vector<NamedTensor> named_buffers() const override { return {}; }
  void train(bool) override {}

 private:
  Tensor add(const std::string& name, const Tensor& values) {
    Tensor parameter = values.to(options_.device).set_requires_grad(true);
    parameters_.push_back({name, parameter});
    return parameter;
  }

  Tensor add_linear(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    return add(name,
               random({outputs, inputs}, std::sqrt(2.0 / static_cast<double>(inputs + outputs))));
  }

  Tensor add_norm(const std::string& name) { return add(name, at::ones({shape_.d_model})); }

  Block add_layer(const std::string& prefix) {
    const std::int64_t d_model = shape_.d_model, d_ff = shape_.d_ff;
    // Evaluated in the order of the members, which is that of the parameters.
    return {.query = add_linear(prefix + "attn.q_proj.weight", d_model, d_model),
            .key = add_linear(prefix + "attn.k_proj.weight", d_model, d_model),
            .value = add_linear(prefix + "attn.v_proj.weight", d_model, d_model),
            .output = add_linear(prefix + "attn.output_proj.weight", d_model, d_model),
            .w1 = add_linear(prefix + "ffn.w1.weight", d_model, d_ff),
            .w2 = add_linear(prefix + "ffn.w2.weight", d_ff, d_model),
            .w3 = add_linear(prefix + "ffn.w3.weight", d_model, d_ff),
            .attention_norm = add_norm(prefix + "ln1.weight"),
            .feed_forward_norm = add_norm(prefix + "ln2.weight")};
  }

  // Truncated normal, by the inverse of the distribution function, as in
  // torch.nn.init.trunc_normal_.
  Tensor random(at::IntArrayRef sizes, double deviation) {
    if (options_.device.is_meta()) {
      return at::empty(sizes, options_.device);
    }
    const double bound = std::erf(kCutOff / std::sqrt(2.0));
    const double most = kCutOff * deviation;
    return at::empty(sizes)
        .uniform_(-bound, bound, generator_)
        .erfinv_()
        .mul_(deviation * std::sqrt(2.0))
        .clamp_(-most, most);
  }

  Tensor norm(const Tensor& x, const Tensor& weight) const {
    return at::rms_norm(x, weight.sizes(), weight, kEpsilon);
  }

  // [n, length, d_model] to [n, length, heads, size of a head]
  Tensor to_heads(const Tensor& x) const { return x.unflatten(-1, {shape_.heads, -1}); }

  Tensor attention(const Tensor& x, const Block& layer, const Tensor& rotation) const {
    const Tensor query = rotate(to_heads(at::linear(x, layer.query)), rotation);
    const Tensor key = rotate(to_heads(at::linear(x, layer.key)), rotation);
    const Tensor value = to_heads(at::linear(x, layer.value));
    const Tensor mixed = at::scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), /*attn_mask=*/{},
        /*dropout_p=*/0, /*is_causal=*/true);
    return at::linear(mixed.transpose(1, 2).flatten(-2), layer.output);
  }

  Tensor feed_forward(const Tensor& x, const Block& layer) const {
    // In a statement of its own: compilers differ in which operand of * they evaluate first, and
    // backward goes the other way round.
    const Tensor gate = at::silu(at::linear(x, layer.w1));
    return at::linear(gate * at::linear(x, layer.w3), layer.w2);
  }

  const TransformerShape shape_;
  const TransformerOptions options_;
  at::Generator generator_;
  std::vector<NamedTensor> parameters_;
  Tensor embedding_, final_norm_, head_;
  std::vector<Block> layers_;
};

}  // namespace

const std::vector<std::string>& transformer_names() {
  static const std::vector<std::string> names = names_of(kShapes);
  return names;
}

TransformerShape transformer_shape(const std::string& name) {
  return named(name, kShapes, "model").shape;
}

std::unique_ptr<Model> make_transformer(const TransformerShape& shape,
                                        const TransformerOptions& options) {
  return std::make_unique<Transformer>(shape, options);
}

}  // namespace ddp
