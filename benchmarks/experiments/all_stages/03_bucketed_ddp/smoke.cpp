#include "03_bucketed_ddp/bucketed_ddp.h"
#include "experiments/all_stages/smoke_test.h"

namespace ddp {
namespace {

void step(const DeviceContext& device_context) {
  train_toy(device_context, [](const Model& model, const ProcessGroupPtr& group) {
    return make_bucketed_ddp(tensors_of(model.named_parameters()), {}, group);
  });
}

const bool kRegistered = register_smoke_test({"03_bucketed_ddp", step});

}  // namespace
}  // namespace ddp
