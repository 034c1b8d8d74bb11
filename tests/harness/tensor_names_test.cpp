#include "ddp/backends/tensor_names.h"

#include <gtest/gtest.h>

#include "support/ranks.h"

namespace ddp {
namespace {

TEST(TensorNames, GoByMemory) {
  testing::in_child([] {
    const at::Tensor weight = at::ones({4, 4}).set_requires_grad(true);
    const at::Tensor bias = at::ones({4});
    TensorNames names;
    names.add({{"fc.weight", weight}});
    names.add({{"fc.bias", bias}});
    EXPECT_EQ(names.of(weight), "fc.weight");
    EXPECT_EQ(names.of(bias), "fc.bias");
    EXPECT_EQ(names.of(weight.detach().t()[2]), "fc.weight");
    EXPECT_EQ(names.of(at::ones({2, 3}, at::kLong)), "a tensor int64 [2, 3]");

    // A gradient may come, and be replaced, at any time.
    const at::Tensor gradient = at::ones({4, 4});
    EXPECT_EQ(names.of(gradient), "a tensor float32 [4, 4]");
    weight.mutable_grad() = gradient;
    EXPECT_EQ(names.of(gradient), "the gradient of fc.weight");
    EXPECT_EQ(names.of(gradient.flatten().narrow(0, 3, 2)), "the gradient of fc.weight");
    EXPECT_EQ(names.of(at::empty({0})), "a tensor float32 [0]");
  });
}

TEST(TensorNames, OfABucketThatGradientsAreViewsOf) {
  testing::in_child([] {
    const at::Tensor bucket = at::zeros({10});
    TensorNames names;
    const auto add = [&](const char* name, std::int64_t begin, std::int64_t length) {
      at::Tensor parameter = at::ones({length}).set_requires_grad(true);
      parameter.mutable_grad() = bucket.narrow(0, begin, length);
      names.add({{name, parameter}});
      return parameter;
    };
    const at::Tensor first = add("fc1.weight", 0, 4);
    names.add({{"fc1.again", first}});  // tied: the same gradient
    EXPECT_EQ(names.of(bucket), "the gradient of fc1.weight");
    add("fc2.weight", 4, 3);
    EXPECT_EQ(names.of(bucket), "the gradients of fc1.weight and 1 other");
    add("fc3.weight", 7, 3);
    EXPECT_EQ(names.of(bucket), "the gradients of fc1.weight and 2 others");
    EXPECT_EQ(names.of(bucket.narrow(0, 8, 1)), "the gradient of fc3.weight");
  });
}

TEST(TensorNames, OverlapIsSharedMemory) {
  testing::in_child([] {
    const at::Tensor memory = at::arange(10);
    EXPECT_TRUE(overlap(memory, memory));
    EXPECT_TRUE(overlap(memory.narrow(0, 0, 6), memory.narrow(0, 5, 5)));
    EXPECT_FALSE(overlap(memory.narrow(0, 0, 5), memory.narrow(0, 5, 5)));
    EXPECT_FALSE(overlap(memory, memory.clone()));
    EXPECT_FALSE(overlap(memory, memory.narrow(0, 5, 0)));
    EXPECT_FALSE(overlap(memory, at::Tensor()));
  });
}

}  // namespace
}  // namespace ddp
