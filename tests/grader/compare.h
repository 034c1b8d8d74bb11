#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "grader/finding.h"

namespace ddp::testing {

/// The distance from 1 to the next number of a floating dtype.
double epsilon_of(at::ScalarType dtype);

/// What is compared, for the message.
struct Subject {
  std::string name;  // "the gradient of fc1.weight"
  int world_size = 1;
  /// This rank's own value before any communication, if the test knows it: a result equal to it was
  /// never reduced.
  at::Tensor local = {};
  /// The diagnosis then.
  std::string if_local = "not reduced over the ranks, or not written back?";
  /// A diagnosis for when the values do not tell one.
  std::string otherwise = {};
};

/// Whether two tensors are equal, and if not, where they differ.
class Comparison {
 public:
  Comparison() = default;  // equal
  explicit Comparison(Finding difference) : difference_(std::move(difference)) {}

  explicit operator bool() const { return difference_.empty(); }
  operator ::testing::AssertionResult() const {  // for EXPECT_TRUE
    return *this ? ::testing::AssertionSuccess()
                 : ::testing::AssertionFailure() << difference_.text;
  }
  const Finding& difference() const { return difference_; }
  const std::string& message() const { return difference_.text; }

 private:
  Finding difference_;
};

/// Equal up to `tolerance`, a number or a tensor with one number for each element; what is infinite
/// or no number has to be just that. The message shows the first few elements that differ and, if
/// one fits, a diagnosis ("exactly 2 x the expected value: the sum, not the mean?").
Comparison is_close(const Subject& subject, const at::Tensor& actual, const at::Tensor& expected,
                    const at::Tensor& tolerance);
Comparison is_close(const Subject& subject, const at::Tensor& actual, const at::Tensor& expected,
                    double tolerance);

/// Equal in every bit, and in shape and dtype.
Comparison is_bitwise_equal(const Subject& subject, const at::Tensor& actual,
                            const at::Tensor& expected);

/// The same without a message.
bool is_identical(const at::Tensor& a, const at::Tensor& b);

/// The same bytes, whatever they stand for.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// A hash of the tensor's bytes: the same for equal tensors, almost certainly different for others.
std::int64_t fingerprint(const at::Tensor& tensor);

}  // namespace ddp::testing
