#include <ATen/ATen.h>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "experiments/all_stages/smoke_test.h"

namespace ddp {
namespace {

void step(const DeviceContext& device_context) {
  // Small whole numbers, whose sums are exact.
  const at::Tensor places = at::arange(1000, at::device(device_context.device).dtype(at::kFloat));
  const at::Tensor tensor = places * (device_context.group->getRank() + 1);
  ring_all_reduce(tensor, device_context.group);
  const int world_size = device_context.group->getSize();
  expect_equal("the sum", tensor, places * (world_size * (world_size + 1) / 2));
}

const bool kRegistered = register_smoke_test({"05_ring_all_reduce", step});

}  // namespace
}  // namespace ddp
