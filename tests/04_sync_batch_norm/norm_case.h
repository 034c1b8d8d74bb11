#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "support/ranks.h"

// One batch of all ranks together, its batch normalization, and the comparisons.

namespace ddp::testing {

struct CaseOptions {
  /// [N, C, ...] of all ranks together.
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool affine = true;
  /// The dtype of weight, bias and running statistics.
  at::ScalarType tensors_dtype = dtype;
  double eps = 1e-5;
  /// The input's mean, apart from offsets that differ between channels and samples.
  double mean = 0.5;
  /// How many of the N samples each rank has; empty: as equal as possible.
  std::vector<std::int64_t> rows = {};
};

/// The batch normalization of the whole batch, in float64, computed in one process.
struct NormReference {
  at::Tensor mean, variance;  // [C]; biased
  double count = 0;           // samples * positions
  at::Tensor normalized;      // the output before weight and bias
  at::Tensor output;
  at::Tensor input_gradient;
};

/// A typical mistake, and its result.
struct Suspicion {
  std::string text;  // "the biased variance"
  at::Tensor value;
};

/// "
///   diagnosis: this is what comes of the biased variance" if `actual` equals that and `expected`
/// does not; else nothing.
std::string explain(const at::Tensor& actual, const at::Tensor& expected,
                    const std::vector<Suspicion>& suspicions);

/// A batch that every rank knows as a whole. Values differ between ranks, channels and positions:
/// local statistics are far from the global ones.
class NormCase {
 public:
  NormCase(const Rank& rank, const CaseOptions& options);

  /// The whole batch, and the derivative of the summed losses with respect to its output.
  const at::Tensor& input() const { return input_; }
  const at::Tensor& upstream() const { return upstream_; }
  /// Replaces the initial random numbers.
  void set_upstream(const at::Tensor& upstream);

  /// Weight and bias, leaves that require a gradient, and running statistics. The same numbers on
  /// all ranks.
  BatchNormTensors tensors;

  /// This rank's part of a tensor shaped like input().
  at::Tensor shard(const at::Tensor& whole) const;
  /// A leaf with this rank's part of the input.
  at::Tensor input_shard() const { return shard(input_).clone().set_requires_grad(true); }
  std::int64_t first_row() const { return first_row_; }
  std::int64_t row_count() const { return row_count_; }

  const NormReference& expected() const { return expected_; }
  /// "(input [64, 128] over all ranks, float32)", for messages.
  std::string text() const;

  /// These compare this rank's tensors with its part of the reference. Tolerance: 1e-10 in float64;
  /// else 1e-3 + 4 eps |mean| / std and the rounding of the dtype.
  void expect_output(const at::Tensor& output, const std::string& note = "") const;
  void expect_input_gradient(const at::Tensor& gradient, const std::string& note = "") const;
  /// For this rank alone: local sums.
  void expect_parameter_gradients(const std::string& note = "") const;
  void expect_running(const at::Tensor& mean_before, const at::Tensor& var_before, double momentum,
                      const std::string& note = "") const;

 private:
  at::Tensor tolerance(const at::Tensor& expected, const at::Tensor& scale) const;
  at::Tensor with_affine(const at::Tensor& normalized) const;
  // Typical mistakes, for this rank.
  std::vector<Suspicion> suspicions_of_output() const;
  std::vector<Suspicion> suspicions_of_input_gradient() const;
  std::vector<Suspicion> suspicions_of_parameter_gradient(const at::Tensor& terms) const;
  std::vector<Suspicion> suspicions_of_running(const at::Tensor& before, const at::Tensor& batch,
                                               double momentum) const;
  void expect_parameter_gradient(const std::string& name, const at::Tensor& gradient,
                                 const at::Tensor& terms, const std::string& note) const;

  CaseOptions options_;
  int world_size_;
  std::int64_t first_row_ = 0, row_count_ = 0;
  at::Tensor input_, upstream_;
  NormReference expected_;
};

/// Output, gradients and running statistics of one step of such a batch, with the function's
/// defaults.
void expect_forward_and_backward(const Rank& rank, const CaseOptions& options);

/// Normal random numbers, float64 on the tests' device: the same on every rank, different for each
/// `salt`.
at::Tensor random_numbers(const std::vector<std::int64_t>& shape, std::uint64_t salt);

/// These set only some of the tensors.
BatchNormTensors affine_tensors(const at::Tensor& weight, const at::Tensor& bias);
BatchNormTensors running_tensors(const at::Tensor& mean, const at::Tensor& var);

/// The sum for each channel: [C].
at::Tensor sum_of_channels(const at::Tensor& values);

/// All dimensions except that of the channels.
std::vector<std::int64_t> without_channels(const at::Tensor& input);

/// [C] as [1, C, 1, 1], or with as many dimensions as `input` has.
at::Tensor along_channels(const at::Tensor& of_channels, const at::Tensor& input);

}  // namespace ddp::testing
