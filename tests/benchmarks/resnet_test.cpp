// The real parameter lists that the benchmarks train.
#include "models/resnet.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/model_summary.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::in_child;

// Published counts: torchvision's documentation of its models.
TEST(ResNet, ParameterCountsAreThePublishedOnes) {
  const std::pair<ResNetKind, std::int64_t> published[] = {
      {ResNetKind::kResNet50, 25'557'032},
      {ResNetKind::kResNet101, 44'549'160},
      {ResNetKind::kResNeXt50, 25'028'904},
      {ResNetKind::kResNeXt101, 88'791'336},
  };
  ASSERT_EQ(std::size(published), all_resnets().size());
  for (const auto& [kind, count] : published) {
    in_child([kind = kind, count = count] {
      EXPECT_EQ(summarize_model(make_resnet(kind)->named_parameters()).total, count)
          << to_string(kind);
    });
  }
}

TEST(ResNet, ResNet50HasTorchvisionsTensors) {
  in_child([] {
    auto model = make_resnet(ResNetKind::kResNet50);
    const auto parameters = model->named_parameters();
    ASSERT_EQ(parameters.size(), 161);
    const char* first[] = {"conv1.weight",          "bn1.weight",          "bn1.bias",
                           "layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias"};
    for (std::size_t i = 0; i < std::size(first); ++i) {
      EXPECT_EQ(parameters[i].name, first[i]);
    }
    EXPECT_EQ(parameters[12].name, "layer1.0.downsample.0.weight");
    EXPECT_EQ(parameters.back().name, "fc.bias");

    const auto by_size = [](const NamedTensor& a, const NamedTensor& b) {
      return a.tensor.numel() < b.tensor.numel();
    };
    const NamedTensor largest = *std::ranges::max_element(parameters, by_size);
    EXPECT_EQ(largest.name, "layer4.0.conv2.weight");
    EXPECT_EQ(largest.tensor.numel(), 2'359'296);

    // Three for each of the 53 BatchNorm layers.
    const auto buffers = model->named_buffers();
    ASSERT_EQ(buffers.size(), 159);
    EXPECT_EQ(buffers[0].name, "bn1.running_mean");
  });
}

TEST(ResNet, EveryParameterGetsAGradient) {
  in_child([] {
    for (ResNetKind kind : {ResNetKind::kResNet50, ResNetKind::kResNeXt50}) {
      auto model = make_resnet(kind);
      at::Tensor scores = model->forward(at::randn({2, 3, 47, 32}));
      EXPECT_EQ(scores.sizes(), at::IntArrayRef({2, 1000}));
      at::cross_entropy_loss(scores, at::tensor({3, 999}, at::kLong)).backward();
      for (const auto& [name, parameter] : model->named_parameters()) {
        ASSERT_TRUE(parameter.grad().defined()) << name;
        EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>()) << name;
      }
    }
  });
}

TEST(ResNet, SeedDecidesTheWeights) {
  in_child([] {
    const auto weights = [](std::uint64_t seed) {
      return make_resnet(ResNetKind::kResNet50, seed)->named_parameters();
    };
    const auto first = weights(1), again = weights(1), other = weights(2);
    for (std::size_t index : {0u, 159u, 160u}) {  // conv1.weight, fc.weight, fc.bias
      EXPECT_TRUE(at::equal(first[index].tensor, again[index].tensor));
      EXPECT_FALSE(at::equal(first[index].tensor, other[index].tensor));
    }
  });
}

TEST(ResNet, UnknownNameListsTheKnownOnes) {
  EXPECT_EQ(resnet_kind("resnet101"), ResNetKind::kResNet101);
  try {
    resnet_kind("resnet49");
    FAIL() << "accepted";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.msg().c_str(),
                 "unknown model \"resnet49\"; there are: resnet50, resnet101, resnext50_32x4d, "
                 "resnext101_32x8d");
  }
}

}  // namespace
}  // namespace ddp
