#include <ATen/ATen.h>

#include <limits>

#include "ring_data.h"
#include "support/compare.h"
#include "support/grading.h"

// Sums and averages: of every size, and the same on every rank.

namespace ddp::testing {

namespace {

void expect_all_reduced(Rank& rank, const RingCase& one) {
  const int world_size = rank.world_size();
  const at::Tensor values = whole_values(one, rank.rank(), world_size);
  const at::Tensor tensor = values.clone();
  ring_all_reduce(tensor, rank.group(), one.op);
  EXPECT_TRUE(is_close({describe(one), world_size, values}, tensor,
                       combined_whole_values(one, world_size), tolerance_of(one)));
}

// A NaN or infinity on one rank appears in the sum, and affects no other element.
void expect_not_finite_kept(Rank& rank, at::ScalarType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values(8, 1);
  if (rank.rank() == 0) {
    values = {kNan, 1, kInfinity, 1, kInfinity, 1, -kInfinity, 1};
  } else if (rank.rank() == 1) {
    values[4] = -kInfinity;
  }
  const at::Tensor tensor = at::tensor(values, at::kDouble).to(dtype).to(settings().device);
  ring_all_reduce(tensor, rank.group());
  const double sum = rank.world_size();
  const at::Tensor expected =
      at::tensor({kNan, sum, kInfinity, sum, kNan, sum, -kInfinity, sum}, at::kDouble);
  EXPECT_TRUE(at::allclose(tensor.to(at::kCPU, at::kDouble), expected, 0, 0, /*equal_nan=*/true))
      << "the sum of " << c10::getDtypeNames(dtype).first << " numbers, of which some are NaN or "
      << "infinite, should be\n"
      << expected << "\nbut is\n"
      << tensor;
}

// Large tensors take long, and longer on more ranks: each is tested in one world size only.
bool is_for_world(std::int64_t size, int index, int world_size) {
  if (size > (1 << 17)) {
    return world_size == 2 + index % 3;
  }
  if (size > (1 << 12)) {
    return world_size == 5 + index % 4;
  }
  return (index + world_size) % 3 == 0;
}

const GradedTest kAllReduce{
    {.name = "all_reduce_gives_every_rank_the_sum_or_average",
     .points = 3,
     .hint =
         "Fix reduce_scatter and all_gather first. Does it hang? Then all ranks wait for a send "
         "whose recv no rank has posted. Chunks come from balanced_split(), empty ones too."},
    [] {
      run_worlds({1, 2, 3, 4, 5, 6, 7, 8}, [](Rank& rank) {
        const auto sizes = sizes_up_to(1 << 20);
        for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
          if (sizes[i] < 18) {
            expect_all_reduced(rank, {.elements = sizes[i]});
          }
          if (is_for_world(sizes[i], i, rank.world_size())) {
            expect_all_reduced(rank, case_in_turn(sizes[i], i + 3 * rank.world_size()));
          }
        }
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
          if (rank.world_size() == 2 || rank.world_size() == 3) {
            expect_not_finite_kept(rank, dtype);
          }
        }
      });
    }};

void expect_same_bits(Rank& rank, const RingCase& one) {
  const at::Tensor tensor = random_values(one, rank.rank());
  ring_all_reduce(tensor, rank.group(), one.op);
  EXPECT_TRUE(has_same_bits_everywhere(rank, tensor))
      << describe(one) << " has not the same bits on all ranks: every element should be added up "
      << "and divided once, on one rank, and be copied to the others";
}

const GradedTest kSameBits{
    {.name = "all_ranks_end_with_the_same_bits",
     .points = 1,
     .hint = "Numbers that are rounded differently on two ranks drift apart in training. Which "
             "ranks divide, and do all divide in the same way?"},
    [] {
      run_worlds({2, 3, 5, 7}, [](Rank& rank) {
        for (const std::int64_t size : {1, 17, 1000}) {
          for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
            expect_same_bits(rank, {.elements = size, .dtype = dtype, .op = ReduceOp::kAverage});
          }
          expect_same_bits(rank, {.elements = size});
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
