// The benchmarks' multilayer perceptron.
#include "models/mlp.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/ranks.h"

namespace ddp {
namespace {

using testing::in_child;

TEST(Mlp, ComputesLinearLayersAndRelus) {
  in_child([] {
    const auto model = make_mlp({3, 5, 4, 2}, /*seed=*/1);
    const auto parameters = model->named_parameters();
    ASSERT_EQ(parameters.size(), 6);
    EXPECT_EQ(parameters[0].name, "layer1.weight");
    EXPECT_EQ(parameters[0].tensor.sizes(), at::IntArrayRef({5, 3}));
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
    for (const auto& [name, parameter] : parameters) {
      EXPECT_TRUE(parameter.grad().defined()) << name;
    }
  });
}

TEST(Mlp, SeedDecidesTheWeights) {
  in_child([] {
    const auto first = make_mlp({4, 4}, 1)->named_parameters();
    const auto again = make_mlp({4, 4}, 1)->named_parameters();
    const auto other = make_mlp({4, 4}, 2)->named_parameters();
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(at::equal(first[i].tensor, again[i].tensor));
      EXPECT_FALSE(at::equal(first[i].tensor, other[i].tensor));
      EXPECT_LE(first[i].tensor.abs().max().item<double>(), 0.5);
    }
  });
}

TEST(Mlp, RefusesWidthsThatMakeNoLayer) {
  for (const std::vector<std::int64_t>& widths :
       {std::vector<std::int64_t>{}, {4}, {4, 0}, {-1, 4}}) {
    EXPECT_THROW(make_mlp(widths), c10::ValueError);
  }
}

}  // namespace
}  // namespace ddp
