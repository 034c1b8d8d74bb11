#include "peers/batch_norms.h"

#include <ATen/ATen.h>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "peers/sync_batch_norm_peer.h"

namespace ddp {
namespace {

class LocalBatchNorm : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

  at::Tensor forward(const at::Tensor& input) override {
    num_batches_tracked.add_(1);
    return std::get<0>(at::native_batch_norm(input, weight, bias, running_mean, running_var,
                                             /*training=*/true, *options().momentum,
                                             options().eps));
  }
};

}  // namespace

std::shared_ptr<BatchNorm> make_batch_norm(const std::string& name, const BatchNormOptions& options,
                                           const ProcessGroupPtr& group) {
  if (name == kStageBatchNorm) {
    return make_sync_batch_norm(options, group);
  }
  if (name == kPeerBatchNorm) {
    return make_sync_batch_norm_peer(options, group);
  }
  TORCH_CHECK_VALUE(name == kLocalBatchNorm, "there is no batch normalization \"", name, "\"");
  return std::make_shared<LocalBatchNorm>(options);
}

}  // namespace ddp
