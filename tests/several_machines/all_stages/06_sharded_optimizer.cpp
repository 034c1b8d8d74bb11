#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "06_sharded_optimizer/sharded_optimizer.h"
#include "smoke_test.h"

namespace ddp {
namespace {

// Small numbers of few bits, whose sums are exact; with three or more ranks the last has padding.
void step_sharded_optimizer(const DeviceContext& device_context) {
  const int rank = device_context.group->getRank();
  const int world_size = device_context.group->getSize();
  const auto on_device = at::device(device_context.device).dtype(at::kFloat);
  const at::Tensor weight = at::full({1001}, rank + 1, on_device).set_requires_grad(true);
  const auto optimizer =
      make_sharded_optimizer({weight}, {}, device_context.group, [](std::vector<at::Tensor> shard) {
        return std::make_unique<torch::optim::SGD>(std::move(shard), torch::optim::SGDOptions(0.5));
      });
  const at::Tensor places = at::arange(1001, on_device);
  (weight * places * (rank + 1)).sum().backward();
  optimizer->step();
  expect_equal("the updated weight", weight.detach(), 1 - 0.5 * places * (world_size + 1) / 2);
}

const bool kRegistered06 = register_smoke_test({"06_sharded_optimizer", step_sharded_optimizer});

}  // namespace
}  // namespace ddp
