#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "models/profiles/model_profile.h"

namespace ddp {
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
