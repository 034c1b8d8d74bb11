#include <ATen/ATen.h>

#include "norm_case.h"
#include "support/compare.h"
#include "support/grading.h"

// The output of forward, in training.

namespace ddp::testing {

namespace {

void expect_output(const Rank& rank, const CaseOptions& options) {
  const NormCase norm(rank, options);
  norm.expect_output(
      sync_batch_norm(norm.input_shard(), norm.tensors, rank.group(), {.eps = options.eps})
          .detach());
}

// Inputs with each number of dimensions, and each combination of optional tensors.
void expect_outputs_of_shapes(const Rank& rank, at::ScalarType dtype) {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
           {24, 5}, {9, 6, 7}, {8, 3, 5, 4}, {7, 4, 2, 3, 5}, {8, 1, 3, 3}, {6, 3, 1}}) {
    for (const bool affine : {true, false}) {
      expect_output(rank, {.shape = shape, .dtype = dtype, .affine = affine, .eps = 0.03});
    }
    expect_output(rank, {.shape = shape, .dtype = dtype, .tensors_dtype = at::kFloat});
  }
}

void expect_outputs_of_some_tensors(const Rank& rank) {
  const NormCase norm(rank, {.shape = {12, 3, 2}, .dtype = at::kDouble, .affine = false});
  const at::Tensor three = random_numbers({3}, 7);
  const at::Tensor normalized = norm.shard(norm.expected().normalized);
  EXPECT_TRUE(is_close(
      {"the output with a bias, without a weight and running statistics"},
      sync_batch_norm(norm.input_shard(), affine_tensors({}, three), rank.group()).detach(),
      normalized + along_channels(three, normalized), 1e-10));
  EXPECT_TRUE(is_close(
      {"the output with a weight, without a bias and running statistics"},
      sync_batch_norm(norm.input_shard(), affine_tensors(three, {}), rank.group()).detach(),
      normalized * along_channels(three, normalized), 1e-10));
}

const GradedTest kOutput{
    {.name = "output_is_batch_norm_of_the_whole_batch",
     .points = 2,
     .hint = "Mean and variance are of all ranks' values together; from n, mean and M of each rank "
             "they follow by the handout's formulas. eps goes under the root."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          expect_outputs_of_shapes(rank, dtype);
        }
        expect_outputs_of_some_tensors(rank);
        for (const std::int64_t hidden : {128, 256, 512, 1024}) {
          for (const std::int64_t batch : {32, 64}) {
            for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
              const bool affine = (hidden + batch) % 3 != 0;
              expect_output(rank, {.shape = {batch, hidden}, .dtype = dtype, .affine = affine});
            }
          }
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
