#include <ATen/ATen.h>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "experiments/all_stages/smoke_test.h"

namespace ddp {
namespace {

void step(const DeviceContext& device_context) {
  const at::Tensor input = at::rand({8, 4}, at::device(device_context.device));
  sync_batch_norm(input.set_requires_grad(true), {}, device_context.group).sum().backward();
}

const bool kRegistered = register_smoke_test({"04_sync_batch_norm", step});

}  // namespace
}  // namespace ddp
