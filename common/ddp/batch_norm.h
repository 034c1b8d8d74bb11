#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

namespace ddp {

/// Like torch::nn::BatchNormOptions, but for designated initializers:
/// {.num_features = 32, .affine = false}.
struct BatchNormOptions {
  /// C, the size of the input's second dimension; > 0.
  std::int64_t num_features = 0;
  /// Added to the variance before the square root; > 0.
  double eps = 1e-5;
  /// Weight of a batch's statistics in the running ones; none for the cumulative average over all
  /// batches.
  std::optional<double> momentum = 0.1;
  /// Whether each feature has a trainable weight (initially 1) and bias (initially 0).
  bool affine = true;
  /// Whether running statistics are kept, and used in evaluation.
  bool track_running_stats = true;
};

/// The base class of this lab's batch normalizations: a module with the state and the names of
/// torch::nn::BatchNorm2d. It owns the tensors; a derived class normalizes the input in forward().
/// A model holds one by register_module(), and train(), eval(), to(), parameters() and buffers()
/// work as for any module.
///
/// weight (initially ones), bias (zeros), running_mean (zeros) and running_var (ones) have shape
/// [C]; num_batches_tracked is a scalar, initially 0. They are created on the CPU in float32, the
/// counter in int64; as in all libtorch modules, to(dtype) converts the counter too. weight and
/// bias are undefined unless affine, the other three unless track_running_stats.
class BatchNorm : public torch::nn::Module {
 public:
  /// Throws c10::Error if num_features < 1 or eps <= 0.
  explicit BatchNorm(const BatchNormOptions& options);
  BatchNorm(const BatchNorm&) = delete;
  BatchNorm& operator=(const BatchNorm&) = delete;
  ~BatchNorm() override;

  /// input: [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W]. The result has the input's shape
  /// and dtype.
  virtual at::Tensor forward(const at::Tensor& input) = 0;

  const BatchNormOptions& options() const { return options_; }

  // The members of torch::nn::BatchNorm2d, public there too.
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;

 private:
  BatchNormOptions options_;
};

}  // namespace ddp
