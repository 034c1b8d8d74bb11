#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/balanced_split.h"
#include "support/ranks.h"

// What the ranks put into the ring, and what must come out of it.

namespace ddp::testing {

/// Tensors of that many elements, one on each rank; they are chunked as the contract says.
struct RingCase {
  std::int64_t elements = 0;
  at::ScalarType dtype = at::kFloat;
  ReduceOp op = ReduceOp::kSum;
};

/// "the average of 17 elements of bfloat16".
std::string describe(const RingCase& one);

/// A rank's elements, in one dimension on the device under test: whole multiples of the world size,
/// so small that no sum of them is rounded in any dtype, and different from rank to rank and from
/// place to place. int64 has them much larger, so that no floating point number could hold them.
at::Tensor whole_values(const RingCase& one, int rank, int world_size);

/// Their sum or average over the ranks.
at::Tensor combined_whole_values(const RingCase& one, int world_size);

/// How far the result may be from that. No sum is rounded. An average is less wrong by rounding,
/// whatever was divided when, than any wrong value would be; rounding itself has a test of its own.
double tolerance_of(const RingCase& one);

/// A rank's elements in [-1, 1), with all the digits that their dtype has.
at::Tensor random_values(const RingCase& one, int rank);

/// Every size to 17, and every power of two to `most` with its neighbours.
std::vector<std::int64_t> sizes_up_to(std::int64_t most);

/// One after the other, in turns: every dtype of the contract's that the tests look at, with every
/// op that it has.
RingCase case_in_turn(std::int64_t elements, std::size_t turn);

/// Chunk `rank` of a tensor, flattened.
at::Tensor chunk_of(const at::Tensor& tensor, int rank, int world_size);

/// True if the tensor has the same bits on every rank. A collective call.
bool has_same_bits_everywhere(Rank& rank, const at::Tensor& tensor);

/// The difference between 1 and the next larger number.
double epsilon_of(at::ScalarType dtype);

}  // namespace ddp::testing
