// The networks that benchmarks train: ResNets, with their real parameter lists, the multilayer
// perceptron, and train_cifar100's network, beside the same one made of torch::nn's modules.
//
// The transformer language model that the benchmarks of stage 03 train.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>

#include <algorithm>
#include <map>

#include "baselines/batch_norms.h"
#include "common/ranks.h"
#include "measuring/workload.h"
#include "models/resnet.h"
#include "models/small_models.h"
#include "models/transformer.h"

namespace ddp {
namespace {

using testing::in_child;
using testing::Rank;
using testing::run_worlds;

void expect_gradients(const Model& model) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>()) << name;
  }
}

// Published counts: torchvision's documentation of its models.
TEST(ResNet, ParameterCountsAreThePublishedOnes) {
  const std::pair<const char*, std::int64_t> published[] = {{"resnet50", 25'557'032},
                                                            {"resnet101", 44'549'160},
                                                            {"resnext50_32x4d", 25'028'904},
                                                            {"resnext101_32x8d", 88'791'336}};
  ASSERT_EQ(std::size(published), resnet_names().size());
  for (const auto& [name, count] : published) {
    in_child([name = name, count = count] {
      EXPECT_EQ(summarize_model(make_resnet(name)->named_parameters()).total, count) << name;
    });
  }
}

TEST(ResNet, ResNet50HasTorchvisionsTensors) {
  in_child([] {
    auto model = make_resnet("resnet50");
    const auto parameters = model->named_parameters();
    ASSERT_EQ(parameters.size(), 161);
    const char* first[] = {"conv1.weight",          "bn1.weight",          "bn1.bias",
                           "layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias"};
    for (std::size_t i = 0; i < std::size(first); ++i) {
      EXPECT_EQ(parameters[i].name, first[i]);
    }
    EXPECT_EQ(parameters[12].name, "layer1.0.downsample.0.weight");
    EXPECT_EQ(parameters.back().name, "fc.bias");
    const ModelSummary summary = summarize_model(parameters);
    EXPECT_EQ(summary.largest, "layer4.0.conv2.weight");
    EXPECT_EQ(summary.largest_elements, 2'359'296);
    // Three for each of the 53 BatchNorm layers.
    const auto buffers = model->named_buffers();
    ASSERT_EQ(buffers.size(), 159);
    EXPECT_EQ(buffers[0].name, "bn1.running_mean");
  });
}

TEST(ResNet, EveryParameterGetsAGradient) {
  in_child([] {
    for (const char* name : {"resnet50", "resnext50_32x4d"}) {
      auto model = make_resnet(name);
      at::Tensor scores = model->forward(at::randn({2, 3, 47, 32}));
      EXPECT_EQ(scores.sizes(), at::IntArrayRef({2, 1000}));
      at::cross_entropy_loss(scores, at::tensor({3, 999}, at::kLong)).backward();
      expect_gradients(*model);
    }
  });
}

void expect_seed_decides(const std::function<std::unique_ptr<Model>(std::uint64_t seed)>& make,
                         const std::vector<std::size_t>& parameters) {
  in_child([&] {
    const auto first = make(1)->named_parameters(), again = make(1)->named_parameters(),
               other = make(2)->named_parameters();
    for (const std::size_t index : parameters) {
      EXPECT_TRUE(at::equal(first[index].tensor, again[index].tensor));
      EXPECT_FALSE(at::equal(first[index].tensor, other[index].tensor));
    }
  });
}

TEST(Models, SeedDecidesTheWeights) {
  // conv1.weight, fc.weight, fc.bias
  expect_seed_decides([](std::uint64_t seed) { return make_resnet("resnet50", seed); },
                      {0, 159, 160});
  expect_seed_decides([](std::uint64_t seed) { return make_mlp({4, 4}, seed); }, {0, 1});
}

TEST(ResNet, UnknownNameListsTheKnownOnes) {
  try {
    resnet_shape("resnet49");
    FAIL() << "accepted";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.msg().c_str(),
                 "unknown model \"resnet49\"; there are: resnet50, resnet101, resnext50_32x4d, "
                 "resnext101_32x8d");
  }
}

TEST(Mlp, ComputesLinearLayersAndRelus) {
  in_child([] {
    const auto model = make_mlp({3, 5, 4, 2}, /*seed=*/1);
    const auto parameters = model->named_parameters();
    ASSERT_EQ(parameters.size(), 6);
    EXPECT_EQ(parameters[0].name, "layer1.weight");
    EXPECT_EQ(parameters[0].tensor.sizes(), at::IntArrayRef({5, 3}));
    EXPECT_LE(parameters[0].tensor.abs().max().item<double>(), 1 / std::sqrt(3));
    EXPECT_EQ(parameters[5].name, "layer3.bias");
    EXPECT_EQ(parameters[5].tensor.sizes(), at::IntArrayRef({2}));

    const at::Tensor input = at::randn({7, 3});
    at::Tensor expected = input;
    for (std::size_t i = 0; i < parameters.size(); i += 2) {
      const at::Tensor inward = i == 0 ? expected : expected.clamp_min(0);
      expected = inward.mm(parameters[i].tensor.t()) + parameters[i + 1].tensor;
    }
    const at::Tensor output = model->forward(input);
    EXPECT_TRUE(at::allclose(output, expected));
    output.sum().backward();
    expect_gradients(*model);
  });
}

// The published network, layer by layer.
struct Published {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(3, 32, 3)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(32, 32, 3)};
  torch::nn::Linear fc1{6272, 128};
  torch::nn::Linear fc2{128, 100};
  torch::nn::BatchNorm1d bn1{torch::nn::BatchNorm1dOptions(128).affine(false)};

  std::vector<at::Tensor> parameters() const {
    return {conv1->weight, conv1->bias, conv2->weight, conv2->bias,
            fc1->weight,   fc1->bias,   fc2->weight,   fc2->bias};
  }

  at::Tensor forward(at::Tensor x, bool training) {
    bn1->train(training);
    x = at::relu(conv2(at::relu(conv1(x))));
    x = at::dropout(at::max_pool2d(x, 2), 0.25, training);
    x = at::relu(bn1(fc1(x.flatten(1))));
    return fc2(at::dropout(x, 0.5, training));
  }
};

TEST(CifarModel, IsThePublishedNetwork) {
  run_worlds({1}, [](Rank& rank) {
    const auto model = make_cifar_model(
        make_batch_norm(kBaselineBatchNorm, {.num_features = kCifarHidden, .affine = false},
                        rank.group()),
        /*seed=*/1, at::kCPU);
    Published published;
    const std::vector<at::Tensor> own = tensors_of(model->named_parameters());
    std::int64_t count = 0;
    ASSERT_EQ(own.size(), published.parameters().size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      const at::NoGradGuard no_grad;
      ASSERT_EQ(own[i].sizes(), published.parameters()[i].sizes());
      published.parameters()[i].copy_(own[i]);
      count += own[i].numel();
    }
    EXPECT_EQ(count, 825'988);

    const at::Tensor images = at::randn({5, 3, 32, 32});
    for (const bool training : {true, false}) {
      model->train(training);
      at::manual_seed(7);
      const at::Tensor found = model->forward(images);
      at::manual_seed(7);
      const at::Tensor expected = published.forward(images, training);
      EXPECT_TRUE(at::allclose(found, expected, 1e-4, 1e-5)) << training;
      found.sum().backward();
    }
  });
}

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
