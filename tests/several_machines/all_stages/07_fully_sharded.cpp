#include <ATen/ATen.h>

#include "07_fully_sharded/fully_sharded.h"
#include "smoke_test.h"

namespace ddp {
namespace {

// Small numbers of few bits, whose sums are exact; with three or more ranks the last has padding.
void step_fully_sharded(const DeviceContext& device_context) {
  const int rank = device_context.group->getRank();
  const int world_size = device_context.group->getSize();
  const auto on_device = at::device(device_context.device).dtype(at::kFloat);
  const at::Tensor places = at::arange(1001, on_device);
  std::vector<Unit> units;
  for (int i = 0; i < 2; ++i) {
    units.push_back({{at::full({1001}, rank + 1, on_device).set_requires_grad(true)},
                     [](const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
                       return x + parameters[0];
                     }});
  }
  const auto model = make_fully_sharded(std::move(units), device_context.group);
  const at::Tensor x = at::zeros({1001}, on_device);
  (model->forward(1, model->forward(0, x)) * places * (rank + 1)).sum().backward();
  model->finish();
  for (const at::Tensor& shard : model->shards()) {
    shard.detach().sub_(shard.grad(), 0.5);
  }
  const auto whole = model->whole_parameters();
  for (const at::Tensor& parameter : whole) {
    expect_equal("the updated parameter", parameter, 1 - 0.5 * places * (world_size + 1) / 2);
  }
}

const bool kRegistered07 = register_smoke_test({"07_fully_sharded", step_fully_sharded});

}  // namespace
}  // namespace ddp
