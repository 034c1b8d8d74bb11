#include <ATen/ATen.h>

#include <random>

#include "ring_data.h"
#include "support/compare.h"
#include "support/grading.h"

// The two phases of the ring, each by itself.

namespace ddp::testing {

namespace {

// A tensor that is not row-major: a matrix of `rows` rows, transposed.
at::Tensor transposed(const at::Tensor& flat, std::int64_t rows) {
  at::Tensor columns = at::empty({flat.numel() / rows, rows}, flat.options()).t();
  columns.copy_(flat.view({rows, -1}));
  return columns;
}

constexpr std::int64_t kSizes[] = {0, 1,  2,  3,  4,  5,  6,   7,    8,
                                   9, 13, 16, 17, 31, 64, 127, 1000, 4099};
constexpr std::int64_t kRows = 6;
constexpr std::int64_t kColumns = 7;

void expect_own_chunk_reduced(Rank& rank, const RingCase& one, bool contiguous = true) {
  const int world_size = rank.world_size();
  const at::Tensor values = whole_values(one, rank.rank(), world_size);
  const at::Tensor tensor = contiguous ? values.clone() : transposed(values, kRows);
  ring_reduce_scatter(tensor, rank.group(), one.op);
  const at::Tensor expected = combined_whole_values(one, world_size);
  EXPECT_TRUE(is_close({"chunk " + std::to_string(rank.rank()) + ", this rank's own, of " +
                            describe(one) + (contiguous ? "" : ", a transposed matrix,"),
                        world_size, chunk_of(values, rank.rank(), world_size)},
                       chunk_of(tensor, rank.rank(), world_size),
                       chunk_of(expected, rank.rank(), world_size), tolerance_of(one)));
}

const GradedTest kReduceScatter{
    {.name = "reduce_scatter_completes_chunk_r_on_rank_r",
     .points = 2,
     .hint = "Chunk r must reach rank r in the last of N-1 steps, after every other rank has added "
             "to it: so which chunk does rank r send first?"},
    [] {
      run_worlds({1, 2, 3, 4, 5, 6, 7, 8}, [](Rank& rank) {
        std::size_t turn = rank.world_size();
        for (const std::int64_t size : kSizes) {
          expect_own_chunk_reduced(rank, case_in_turn(size, turn++));
        }
        const RingCase matrix{.elements = kRows * kColumns, .op = ReduceOp::kAverage};
        expect_own_chunk_reduced(rank, matrix, /*contiguous=*/false);
      });
    }};

// Integers of the same size, which compare and show every bit, even those of a NaN.
at::Tensor as_bits(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 2:
      return tensor.view(at::kShort);
    case 4:
      return tensor.view(at::kInt);
    default:
      return tensor.view(at::kLong);
  }
}

// Elements with arbitrary bits on rank `rank`: NaNs with various payloads, infinities, subnormal
// numbers; and a negative zero in each chunk.
at::Tensor any_bits(const RingCase& one, int rank, int world_size) {
  std::mt19937_64 random(settings().seed * 64 + rank);
  const at::Tensor like = at::empty({0}, one.dtype);
  const std::int64_t words = one.elements * like.element_size() / 8 + 1;
  std::vector<std::int64_t> bits(words);
  for (std::int64_t& word : bits) {
    word = static_cast<std::int64_t>(random());
  }
  at::Tensor tensor =
      at::tensor(bits, at::kLong).view(one.dtype).narrow(0, 0, one.elements).contiguous();
  const at::Tensor chunk = chunk_of(tensor, rank, world_size);
  if (chunk.numel() > 0 && chunk.is_floating_point()) {
    chunk[0].fill_(-0.0);
  }
  return tensor.to(settings().device);
}

// Chunk r of rank r's elements, for every r.
at::Tensor gathered_bits(const RingCase& one, int world_size) {
  std::vector<at::Tensor> chunks;
  chunks.reserve(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    chunks.push_back(chunk_of(any_bits(one, rank, world_size), rank, world_size));
  }
  return at::cat(chunks);
}

void expect_gathered(Rank& rank, const RingCase& one, bool contiguous = true) {
  const int world_size = rank.world_size();
  const at::Tensor values = any_bits(one, rank.rank(), world_size);
  const at::Tensor tensor = contiguous ? values.clone() : transposed(values, kRows);
  ring_all_gather(tensor, rank.group());
  EXPECT_TRUE(is_bitwise_equal(
      {"an all-gather of " + std::to_string(one.elements) + " elements of " +
           c10::getDtypeNames(one.dtype).first + (contiguous ? "" : ", a transposed matrix") +
           " (each chunk r is to be rank r's in every bit; shown as integers of these bits),",
       world_size},
      as_bits(tensor.reshape({-1})), as_bits(gathered_bits(one, world_size))));
}

const GradedTest kAllGather{
    {.name = "all_gather_hands_chunk_r_of_rank_r_to_all",
     .points = 2,
     .hint = "Rank r begins with its own chunk r, and passes on what it received in the step "
             "before. Chunks are copied into their place, whatever was there."},
    [] {
      run_worlds({1, 2, 3, 4, 5, 6, 7, 8}, [](Rank& rank) {
        std::size_t turn = rank.world_size();
        for (const std::int64_t size : kSizes) {
          expect_gathered(rank, case_in_turn(size, turn++));
        }
        expect_gathered(rank, {.elements = kRows * kColumns}, /*contiguous=*/false);
      });
    }};

}  // namespace

}  // namespace ddp::testing
