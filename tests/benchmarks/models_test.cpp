// The networks that benchmarks train: ResNets, with their real parameter lists, the multilayer
// perceptron, and train_cifar100's network, beside the same one made of torch::nn's modules.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>

#include <algorithm>

#include "harness/workload.h"
#include "models/resnet.h"
#include "models/small_models.h"
#include "peers/batch_norms.h"
#include "support/ranks.h"

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
        make_batch_norm(kPeerBatchNorm, {.num_features = kCifarHidden, .affine = false},
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

}  // namespace
}  // namespace ddp
