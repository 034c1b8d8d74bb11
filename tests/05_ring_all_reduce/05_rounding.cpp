#include <ATen/ATen.h>

#include "ring_data.h"
#include "support/compare.h"
#include "support/grading.h"

// How much precision is lost.

namespace ddp::testing {

namespace {

constexpr std::int64_t kElements = 4099;
constexpr double kSmallestHalf = 0x1p-24;  // the rounding error of tiny float16 quotients

// For every element, how far its sum may be from the exact one. Each addition rounds its result s
// by at most u |s|, u = epsilon / 2. The sum begins on rank `first`, and the ranks to its right add
// to it.
at::Tensor bound_of_sum(const std::vector<at::Tensor>& values, std::size_t first, double u) {
  at::Tensor sum = values[first];
  at::Tensor error = at::zeros_like(sum);
  for (std::size_t step = 1; step < values.size(); ++step) {
    sum = sum + values[(first + step) % values.size()];
    error = error + u * (sum.abs() + error);
  }
  return error;
}

// An average divides once, possibly by multiplying with the rounded reciprocal; or every rank
// divides its own values before they are added.
at::Tensor bound_of_average(const std::vector<at::Tensor>& values, std::size_t first, double u) {
  const auto size = static_cast<double>(values.size());
  at::Tensor magnitude = at::zeros_like(values[0]);
  for (const at::Tensor& value : values) {
    magnitude = magnitude + value.abs() / size;
  }
  const at::Tensor added = bound_of_sum(values, first, u) / size;
  const bool exact = (values.size() & (values.size() - 1)) == 0;
  return added + (exact ? 0 : 2 * u) * (magnitude + added);
}

// The sum in float64, as if it were rounded only once: the error of each addition is computed
// (Knuth's two-sum), and added at the end.
at::Tensor accurate_sum(const std::vector<at::Tensor>& values) {
  at::Tensor sum = at::zeros_like(values[0]);
  at::Tensor lost = at::zeros_like(sum);
  for (const at::Tensor& value : values) {
    const at::Tensor next = sum + value;
    const at::Tensor added = next - sum;
    lost = lost + (sum - (next - added)) + (value - added);
    sum = next;
  }
  return sum + lost;
}

// One chunk of the result, where `values` are the ranks' values in float64. The sum begins on the
// rank to the right of the one where it ends; the chunk's number does not fix that rank here.
void expect_chunk_within_bound(const Subject& subject, const at::Tensor& actual,
                               const std::vector<at::Tensor>& values, const RingCase& one) {
  const std::size_t size = values.size();
  const double u = epsilon_of(one.dtype) / 2;
  const bool average = one.op == ReduceOp::kAverage;
  const at::Tensor expected = accurate_sum(values) / (average ? static_cast<double>(size) : 1);
  // The reference is rounded, too, and twice for an average.
  const at::Tensor slack =
      expected.abs() * epsilon_of(at::kDouble) + (one.dtype == at::kHalf ? kSmallestHalf : 0);
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  for (std::size_t first = 0; first < size; ++first) {
    const at::Tensor bound =
        average ? bound_of_average(values, first, u) : bound_of_sum(values, first, u);
    result = is_close(subject, actual, expected, bound + slack);
    if (result) {
      return;
    }
  }
  EXPECT_TRUE(result);
}

void expect_within_bound(Rank& rank, at::ScalarType dtype, ReduceOp op) {
  const int world_size = rank.world_size();
  const RingCase one{.elements = kElements, .dtype = dtype, .op = op};
  const at::Tensor tensor = random_values(one, rank.rank());
  ring_all_reduce(tensor, rank.group(), op);
  std::vector<at::Tensor> inputs;
  inputs.reserve(world_size);
  for (int other = 0; other < world_size; ++other) {
    inputs.push_back(random_values(one, other).to(at::kCPU, at::kDouble));
  }
  for (int chunk = 0; chunk < world_size; ++chunk) {
    std::vector<at::Tensor> values;
    values.reserve(world_size);
    for (const at::Tensor& input : inputs) {
      values.push_back(chunk_of(input, chunk, world_size));
    }
    const Subject subject{"chunk " + std::to_string(chunk) + " of " + describe(one) +
                              ", compared with an exact one: off by more than " +
                              std::to_string(world_size - 1) + " additions" +
                              (op == ReduceOp::kAverage ? " and a division" : "") + " in " +
                              c10::getDtypeNames(dtype).first + " may be; it",
                          world_size, values[rank.rank()]};
    expect_chunk_within_bound(
        subject, chunk_of(tensor, chunk, world_size).to(at::kCPU, at::kDouble), values, one);
  }
}

const GradedTest kRounding{
    {.name = "rounding_stays_within_the_rings_bound",
     .points = 1,
     .hint = "N-1 additions and one division, in the tensor's dtype or a better one: convert "
             "nothing to fewer digits on the way, and do not divide in every step."},
    [] {
      run_worlds({2, 3, 4, 8}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
          expect_within_bound(rank, dtype, ReduceOp::kSum);
          expect_within_bound(rank, dtype, ReduceOp::kAverage);
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
