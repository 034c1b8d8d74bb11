#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

namespace ddp {

/// As torch::nn::BatchNormOptions, with designated initialisers: {.num_features = 32, .affine =
/// false}.
struct BatchNormOptions {
  /// C, the size of the input's second dimension; > 0.
  std::int64_t num_features = 0;
  /// Added to the variance under the root; > 0.
  double eps = 1e-5;
  /// Weight of a batch's statistics in the running ones; none: the cumulative average over all
  /// batches.
  std::optional<double> momentum = 0.1;
  /// True: a trainable weight, ones at first, and bias, zeros at first, for each feature.
  bool affine = true;
  /// True: running statistics are kept, and used in evaluation.
  bool track_running_stats = true;
};

/// What every batch normalization of this lab is: a module with the state, and the names, of
/// torch::nn::BatchNorm2d. It owns the tensors; how an input is normalized is forward()'s, which a
/// derived class writes. A model holds one by register_module(), and train(), eval(), to(),
/// parameters() and buffers() work as for any module.
///
/// Shapes: weight (ones at first), bias, running_mean (zeros) and running_var (ones) are [C];
/// num_batches_tracked is a scalar, 0 at first. They are created on the CPU, in float32, the
/// counter in int64; as in all of libtorch's modules, to(dtype) converts the counter as well.
/// Undefined are weight and bias unless affine, and the other three unless track_running_stats.
class BatchNorm : public torch::nn::Module {
 public:
  /// Throws c10::Error where num_features < 1 or eps <= 0.
  explicit BatchNorm(const BatchNormOptions& options);
  BatchNorm(const BatchNorm&) = delete;
  BatchNorm& operator=(const BatchNorm&) = delete;
  ~BatchNorm() override;

  /// input: [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W]. The result has the input's shape
  /// and dtype.
  virtual at::Tensor forward(const at::Tensor& input) = 0;

  const BatchNormOptions& options() const { return options_; }

  // The members that torch::nn::BatchNorm2d has, public there as well.
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;

 private:
  BatchNormOptions options_;
};

}  // namespace ddp
