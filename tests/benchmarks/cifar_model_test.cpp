// The network that train_cifar100 trains, beside the same one made of torch::nn's modules.
#include "models/cifar_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>

#include "peers/batch_norms.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::Rank;
using testing::run_worlds;

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
