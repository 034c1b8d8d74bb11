// The transformer language model that the benchmarks of stage 03 train.
#include "models/transformer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "harness/workload.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::in_child;

constexpr TransformerShape kTinyShape = {
    .d_model = 8, .d_ff = 12, .layers = 2, .heads = 2, .vocabulary = 11};

at::Tensor tokens(std::int64_t n, std::int64_t length) {
  return at::arange(n * length).mul(7).remainder(kTinyShape.vocabulary).view({n, length});
}

// GPT-2 XL's vocabulary with xl's shape has 2,127,057,600 parameters, as CS336's assignment 1 says.
TEST(Transformer, ParameterCountsAreTheFormulas) {
  TransformerShape gpt2_xl = transformer_shape("xl");
  EXPECT_EQ(parameter_count(gpt2_xl), 1'998'235'200);
  gpt2_xl.vocabulary = 50'257;
  EXPECT_EQ(parameter_count(gpt2_xl), 2'127'057'600);
  EXPECT_EQ(parameter_count(transformer_shape("large")), 969'411'840);
  EXPECT_EQ(parameter_count(transformer_shape("medium")), 423'183'360);
  EXPECT_EQ(parameter_count(transformer_shape("small")), 128'625'408);
  EXPECT_EQ(parameter_count(transformer_shape("reduced")), 802'336);
  in_child([] {
    for (const TransformerShape& shape : {kTinyShape, transformer_shape("reduced")}) {
      const auto parameters = make_transformer(shape)->named_parameters();
      EXPECT_EQ(summarize_model(parameters).total, parameter_count(shape));
      EXPECT_EQ(parameters.size(), 9 * shape.layers + 3);
    }
  });
}

// The weights of the reference below, by name.
class Weights {
 public:
  explicit Weights(const Model& model) {
    for (const NamedTensor& entry : model.named_parameters()) {
      named_[entry.name] = entry.tensor.detach();
    }
  }

  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return x.matmul(named_.at(name + ".weight").t());
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return x / (x.square().mean(-1, /*keepdim=*/true) + 1e-5).sqrt() * named_.at(name + ".weight");
  }
  at::Tensor embed(const at::Tensor& input) const {
    return named_.at("token_embeddings.weight").index_select(0, input);
  }

 private:
  std::map<std::string, at::Tensor> named_;
};

// The matrix that rotates a query or key at `position`: blocks of 2x2 on the diagonal.
at::Tensor rotation_matrix(std::int64_t position, std::int64_t size) {
  at::Tensor matrix = at::zeros({size, size});
  for (std::int64_t k = 0; k < size; k += 2) {
    const double angle = static_cast<double>(position) *
                         std::pow(10'000, -static_cast<double>(k) / static_cast<double>(size));
    matrix[k][k] = matrix[k + 1][k + 1] = std::cos(angle);
    matrix[k][k + 1] = -std::sin(angle);
    matrix[k + 1][k] = std::sin(angle);
  }
  return matrix;
}

// One head: token by token. query, key, value: [length, size].
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const std::int64_t length = query.size(0), size = query.size(1);
  std::vector<at::Tensor> outputs;
  for (std::int64_t i = 0; i < length; ++i) {
    std::vector<at::Tensor> scores;
    for (std::int64_t j = 0; j <= i; ++j) {
      // Only their distance matters.
      const at::Tensor turned = rotation_matrix(j - i, size).mv(key[j]);
      scores.push_back(query[i].dot(turned) / std::sqrt(static_cast<double>(size)));
    }
    outputs.push_back(at::stack(scores).softmax(0).matmul(value.narrow(0, 0, i + 1)));
  }
  return at::stack(outputs);
}

// Logits of one sequence, [length] to [length, vocabulary], with rotations by the relative
// position.
at::Tensor reference(const Model& model, const TransformerShape& shape, const at::Tensor& input) {
  const Weights weights(model);
  at::Tensor x = weights.embed(input);
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    const at::Tensor normed = weights.norm(x, layer + "ln1");
    const auto heads = [&](const char* name) {
      return weights.linear(normed, layer + "attn." + name).chunk(shape.heads, -1);
    };
    const auto query = heads("q_proj"), key = heads("k_proj"), value = heads("v_proj");
    std::vector<at::Tensor> mixed;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      mixed.push_back(attend(query[head], key[head], value[head]));
    }
    x = x + weights.linear(at::cat(mixed, -1), layer + "attn.output_proj");
    const at::Tensor inner = weights.norm(x, layer + "ln2");
    const at::Tensor gate = weights.linear(inner, layer + "ffn.w1");
    x = x + weights.linear(gate * gate.sigmoid() * weights.linear(inner, layer + "ffn.w3"),
                           layer + "ffn.w2");
  }
  return weights.linear(weights.norm(x, "ln_final"), "lm_head");
}

TEST(Transformer, ComputesWhatItSays) {
  in_child([] {
    const auto model = make_transformer(kTinyShape, {.seed = 1});
    const at::Tensor input = tokens(2, 7);
    const at::Tensor logits = model->forward(input);
    ASSERT_EQ(logits.sizes(), at::IntArrayRef({2, 7, kTinyShape.vocabulary}));
    for (std::int64_t n = 0; n < 2; ++n) {
      EXPECT_TRUE(at::allclose(logits[n], reference(*model, kTinyShape, input[n]), 1e-4, 1e-5));
    }
  });
}

TEST(Transformer, LaterTokensChangeNoEarlierLogits) {
  in_child([] {
    const auto model = make_transformer(kTinyShape, {.seed = 1});
    const at::Tensor input = tokens(2, 6);
    const at::Tensor logits = model->forward(input);
    at::Tensor other = input.clone();
    other.select(1, 4).add_(1).remainder_(kTinyShape.vocabulary);
    const at::Tensor changed = model->forward(other);
    EXPECT_TRUE(at::allclose(changed.narrow(1, 0, 4), logits.narrow(1, 0, 4), 0, 1e-6));
    for (std::int64_t later : {4, 5}) {
      EXPECT_FALSE(at::allclose(changed.select(1, later), logits.select(1, later), 0, 1e-3));
    }
  });
}

TEST(Transformer, EveryParameterGetsAGradient) {
  in_child([] {
    const auto model = make_transformer(kTinyShape);
    at::cross_entropy_loss(model->forward(tokens(2, 5)).flatten(0, 1), tokens(10, 1).flatten())
        .backward();
    for (const auto& [name, parameter] : model->named_parameters()) {
      ASSERT_TRUE(parameter.grad().defined()) << name;
      EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>()) << name;
      EXPECT_GT(parameter.grad().abs().max().item<double>(), 0) << name;
    }
  });
}

TEST(Transformer, SeedDecidesTheWeights) {
  in_child([] {
    const auto first = make_transformer(kTinyShape, {.seed = 1})->named_parameters();
    const auto again = make_transformer(kTinyShape, {.seed = 1})->named_parameters();
    const auto other = make_transformer(kTinyShape, {.seed = 2})->named_parameters();
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(at::equal(first[i].tensor, again[i].tensor));
      const bool is_norm = first[i].name.find("ln") != std::string::npos;
      EXPECT_EQ(at::equal(first[i].tensor, other[i].tensor), is_norm) << first[i].name;
    }
  });
}

TEST(Transformer, InitialWeightsAreCutOffNormals) {
  in_child([] {
    const TransformerShape shape = {
        .d_model = 64, .d_ff = 192, .layers = 1, .heads = 1, .vocabulary = 500};
    for (const auto& [name, parameter] : make_transformer(shape)->named_parameters()) {
      const double deviation =
          name == "token_embeddings.weight" ? 1
          : parameter.dim() == 2
              ? std::sqrt(2.0 / static_cast<double>(parameter.size(0) + parameter.size(1)))
              : 0;
      const at::Tensor values = parameter.detach();
      if (deviation == 0) {
        EXPECT_TRUE(values.eq(1).all().item<bool>()) << name;
      } else {
        EXPECT_LE(values.abs().max().item<double>(), 3 * deviation) << name;
        // Truncated at three standard deviations, a normal distribution keeps 98.7 % of its own.
        EXPECT_NEAR(values.std().item<double>() / deviation, 0.987, 0.03) << name;
        EXPECT_NEAR(values.mean().item<double>() / deviation, 0, 0.05) << name;
      }
    }
  });
}

TEST(Transformer, ComputingIsSharedByTheWeights) {
  in_child([] {
    std::int64_t spent = 0;
    const auto model = make_transformer(
        kTinyShape, {.compute = [&](std::int64_t ns, const std::string&) { spent += ns; },
                     .forward_ns = 1'000'000,
                     .backward_ns = 2'000'000});
    const at::Tensor logits = model->forward(tokens(1, 2));
    EXPECT_NEAR(spent, 1'000'000, 20);  // rounded in each of 15 linear layers
    logits.sum().backward();
    EXPECT_NEAR(spent, 3'000'000, 40);
  });
}

TEST(Transformer, RefusesWhatMakesNoModel) {
  in_child([] {
    TransformerShape none = kTinyShape, odd = kTinyShape;
    none.layers = 0;
    odd.heads = 8;
    EXPECT_THROW(make_transformer(none), c10::ValueError);
    EXPECT_THROW(make_transformer(odd), c10::ValueError);
  });
  EXPECT_EQ(transformer_shape("medium").heads, 16);
  try {
    transformer_shape("huge");
    FAIL() << "accepted";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.msg().c_str(),
                 "unknown model \"huge\"; there are: small, medium, large, xl, reduced");
  }
}

}  // namespace
}  // namespace ddp
