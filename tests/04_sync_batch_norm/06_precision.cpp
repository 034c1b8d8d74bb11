#include <ATen/ATen.h>

#include "norm_case.h"
#include "support/compare.h"
#include "support/grading.h"

// How much precision is left.

namespace ddp::testing {

namespace {

const GradedTest kLargeMean{
    {.name = "a_large_mean_costs_no_digits",
     .points = 1,
     .hint =
         "With a mean of 10000 and a deviation of 1, mean(x^2) - mean(x)^2 in float32 is noise. "
         "Subtract the mean first, and combine the ranks' M by the handout's formula."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const double mean : {1e4, -1e4}) {
          expect_forward_and_backward(rank, {.shape = {48, 32}, .mean = mean});
          expect_forward_and_backward(rank, {.shape = {12, 9, 2, 3}, .mean = mean});
        }
        expect_forward_and_backward(rank, {.shape = {48, 8}, .dtype = at::kDouble, .mean = 100});
      });
    }};

// Thousands of values of about 40: their sum exceeds half's largest number, and bfloat16's eight
// bits cannot represent it accurately.
void expect_of_low_precision(const Rank& rank, at::ScalarType dtype, at::ScalarType of_tensors) {
  expect_forward_and_backward(
      rank, {.shape = {4096, 2}, .dtype = dtype, .tensors_dtype = of_tensors, .mean = 40});
  expect_forward_and_backward(
      rank, {.shape = {8, 3, 16, 24}, .dtype = dtype, .tensors_dtype = of_tensors, .mean = 40});
}

const GradedTest kLowPrecision{
    {.name = "half_and_bfloat16_keep_float32_statistics",
     .points = 1,
     .hint = "Convert to float32 before anything is subtracted, added up or sent, in backward too. "
             "Only returned tensors have the input's dtype."},
    [] {
      run_worlds({1, 2, 3}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
          expect_of_low_precision(rank, dtype, at::kFloat);
          expect_of_low_precision(rank, dtype, dtype);
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
