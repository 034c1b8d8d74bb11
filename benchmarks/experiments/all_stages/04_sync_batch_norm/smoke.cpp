#include <ATen/ATen.h>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "experiments/all_stages/smoke_test.h"

namespace ddp {
namespace {

constexpr int kSamples = 8;  // of each rank
constexpr int kChannels = 4;

// Forward and backward over the batches of all ranks, beside libtorch's over the whole batch. The
// samples lie apart, so that each rank's own statistics are far from those of all.
void step(const DeviceContext& device_context) {
  const int rank = device_context.group->getRank();
  const std::int64_t samples = std::int64_t{kSamples} * device_context.group->getSize();
  const auto options = at::device(device_context.device).dtype(at::kDouble);
  const at::Tensor values =
      at::arange(samples * kChannels, options).square().view({samples, kChannels});
  const at::Tensor upstream = values.sin();
  const at::Tensor whole = values.clone().set_requires_grad(true);
  const at::Tensor expected = at::batch_norm(whole, {}, {}, {}, {}, /*training=*/true,
                                             /*momentum=*/0.1, /*eps=*/1e-5, false);
  expected.backward(upstream);
  const auto shard = [&](const at::Tensor& all) {
    return all.narrow(0, std::int64_t{kSamples} * rank, kSamples);
  };
  const at::Tensor input = shard(values).clone().set_requires_grad(true);
  const at::Tensor output = sync_batch_norm(input, {}, device_context.group);
  output.backward(shard(upstream));
  expect_equal("the output", output, shard(expected));
  expect_equal("the gradient of the input", input.grad(), shard(whole.grad()));
}

const bool kRegistered = register_smoke_test({"04_sync_batch_norm", step});

}  // namespace
}  // namespace ddp
