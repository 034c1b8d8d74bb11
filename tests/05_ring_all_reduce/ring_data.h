#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/balanced_split.h"
#include "support/ranks.h"

// The ranks' inputs to the ring, and the expected results.

namespace ddp::testing {

/// One tensor of `elements` elements on each rank, chunked as the contract says.
struct RingCase {
  std::int64_t elements = 0;
  at::ScalarType dtype = at::kFloat;
  ReduceOp op = ReduceOp::kSum;
};

/// "the average of 17 elements of bfloat16".
std::string describe(const RingCase& one);

/// A rank's elements, in one dimension on the device under test: multiples of the world size, so
/// small that no sum of them is rounded in any dtype, and different between ranks and positions.
/// int64 values are much larger, beyond the precision of any floating-point type.
at::Tensor whole_values(const RingCase& one, int rank, int world_size);

/// Their sum or average over the ranks.
at::Tensor combined_whole_values(const RingCase& one, int world_size);

/// How far the result may be from combined_whole_values(). No sum is rounded. The rounding of an
/// average, wherever it divides, is smaller than the error of any wrong value; rounding has a test
/// of its own.
double tolerance_of(const RingCase& one);

/// A rank's elements in [-1, 1), with the full precision of their dtype.
at::Tensor random_values(const RingCase& one, int rank);

/// Every size up to 17, and every power of two up to `most` with its neighbours.
std::vector<std::int64_t> sizes_up_to(std::int64_t most);

/// Cycles, with `turn`, through every dtype of the contract that is tested, with each of its ops.
RingCase case_in_turn(std::int64_t elements, std::size_t turn);

/// Chunk `rank` of a tensor, flattened.
at::Tensor chunk_of(const at::Tensor& tensor, int rank, int world_size);

/// True if the tensor is bitwise equal on all ranks. A collective call.
bool has_same_bits_everywhere(Rank& rank, const at::Tensor& tensor);

/// The difference between 1 and the next larger number.
double epsilon_of(at::ScalarType dtype);

}  // namespace ddp::testing
