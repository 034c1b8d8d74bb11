#include "ddp/batch_norm.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

namespace ddp {

BatchNorm::BatchNorm(const BatchNormOptions& options)
    : torch::nn::Module("BatchNorm"), options_(options) {
  const std::int64_t features = options.num_features;
  TORCH_CHECK(features >= 1, "BatchNorm: num_features is ", features, ", but must be at least 1");
  TORCH_CHECK(options.eps > 0, "BatchNorm: eps is ", options.eps, ", but must be greater than 0");
  if (options.affine) {
    weight = register_parameter("weight", at::ones({features}));
    bias = register_parameter("bias", at::zeros({features}));
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", at::zeros({features}));
    running_var = register_buffer("running_var", at::ones({features}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
}

// Defined here, not in the header, so that this library holds the class's virtual table.
BatchNorm::~BatchNorm() = default;

}  // namespace ddp
