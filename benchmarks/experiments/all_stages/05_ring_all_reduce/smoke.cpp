#include <ATen/ATen.h>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "experiments/all_stages/smoke_test.h"

namespace ddp {
namespace {

void step(const DeviceContext& device_context) {
  ring_all_reduce(at::ones({1000}, at::device(device_context.device)), device_context.group);
}

const bool kRegistered = register_smoke_test({"05_ring_all_reduce", step});

}  // namespace
}  // namespace ddp
