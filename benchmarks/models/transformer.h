#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/models/model.h"

namespace ddp {

/// How large a transformer language model is.
struct TransformerShape {
  std::int64_t d_model;  // width of a token's vector: heads times an even number
  std::int64_t d_ff;     // width inside a feed-forward layer
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t vocabulary = 10'000;

  bool operator==(const TransformerShape&) const = default;
};

/// The elements of all parameters: two matrices of embedding size, and in each layer four square
/// matrices of attention, three of the feed-forward layer, and two norms; one more norm at the end.
constexpr std::int64_t parameter_count(const TransformerShape& shape) {
  const auto [d, d_ff, layers, heads, vocabulary] = shape;
  return 2 * vocabulary * d + layers * (4 * d * d + 3 * d * d_ff + 2 * d) + d;
}

/// - small, medium, large and xl (as in Stanford CS336's assignment 2),
/// - reduced: xl's 48 layers and proportions at 1/50 of its width and vocabulary. Each of its
///   weights is the same fraction of the whole as in xl, so that caps that are the same fraction of
///   all gradients cut both into the same buckets.
const std::vector<std::string>& transformer_names();

/// Throws c10::ValueError, listing the known names, for any other.
TransformerShape transformer_shape(const std::string& name);

struct TransformerOptions {
  std::uint64_t seed = 0;
  at::Device device = at::kCPU;
};

/// Makes a transformer language model, float32, that maps tokens [n, length], int64, to logits
/// [n, length, vocabulary]: logits[:, i] are scores for token i + 1, and depend on tokens up to i.
///
/// Each layer: x += attention(norm(x)), then x += feed_forward(norm(x)). At the end follow a norm
/// and a linear layer that does not share the embedding's weight.
/// - norm: RMSNorm (Zhang and Sennrich, arXiv:1910.07467) with eps 1e-5.
/// - attention: causal, with several heads, and rotary position embeddings (Su et al.,
///   arXiv:2104.09864) of base 10,000 on queries and keys.
/// - feed_forward: SwiGLU (Shazeer, arXiv:2002.05202): w2(silu(w1 x) * w3 x).
///
/// No biases. Architecture, names and order of the parameters, and initial values are those of
/// Stanford CS336's assignment 1: normal distributions truncated at three standard deviations, with
/// a variance of 2 / (inputs + outputs) for linear layers and 1 for the embedding; norms' weights
/// are ones. The values depend on the seed alone. On the device "meta" there are shapes, and no
/// values.
///
/// Throws c10::ValueError if a number of the shape is not positive, or if d_model is not heads
/// times an even number.
std::unique_ptr<Model> make_transformer(const TransformerShape& shape,
                                        const TransformerOptions& options = {});

}  // namespace ddp
