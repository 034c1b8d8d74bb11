#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "ring_data.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"

// What a rank sends, and to whom; and that it does not touch data in flight.

namespace ddp::testing {

namespace {

using Sizes = std::vector<std::int64_t>;  // of messages, in bytes

Sizes chunk_bytes(const at::Tensor& tensor, int world_size) {
  Sizes bytes;
  for (const Chunk& chunk : balanced_split(tensor.numel(), world_size)) {
    bytes.push_back(chunk.size * static_cast<std::int64_t>(tensor.element_size()));
  }
  return bytes;
}

// All chunks but one: what a rank sends in one phase.
Sizes without(Sizes chunks, int left_out) {
  chunks.erase(chunks.begin() + left_out);
  return chunks;
}

Sizes joined(Sizes first, const Sizes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The same messages in any order; those of empty chunks may be missing.
bool are_sizes(const Sizes& sent, const Sizes& due) {
  const auto full = [](Sizes sizes) {
    std::erase(sizes, 0);
    return sorted(sizes);
  };
  return full(sent) == full(due) && sent.size() <= due.size();
}

std::string text_of(const Sizes& sizes) {
  std::ostringstream out;
  for (const std::int64_t size : sizes) {
    out << (out.tellp() > 0 ? ", " : "") << size;
  }
  return sizes.empty() ? "nothing" : out.str();
}

// Only messages, to the right and from the left. Returns the sizes of those sent.
Sizes expect_neighbours_only(Rank& rank, const std::vector<RecordedOperation>& operations,
                             const std::string& what) {
  const int right = (rank.rank() + 1) % rank.world_size();
  const int left = (rank.rank() + rank.world_size() - 1) % rank.world_size();
  Sizes sent;
  std::size_t received = 0;
  for (const RecordedOperation& operation : operations) {
    EXPECT_TRUE(operation.is_message())
        << what << " should be made of send and recv only; here is another operation:"
        << list_of({operation});
    if (operation.type == c10d::OpType::SEND) {
      sent.push_back(operation.bytes);
      EXPECT_EQ(operation.peer, right)
          << what << ": this rank should send to its right neighbour only, rank " << right
          << "; it sends to rank " << operation.peer;
    } else if (operation.is_message()) {
      ++received;
      EXPECT_EQ(operation.peer, left)
          << what << ": this rank should receive from its left neighbour only, rank " << left
          << "; it receives from rank " << operation.peer;
    }
  }
  const auto limit = 2 * static_cast<std::size_t>(rank.world_size() - 1);
  EXPECT_TRUE(sent.size() <= limit && received <= limit)
      << what << ": 2(N-1) = " << limit << " messages are enough each way; this rank sends "
      << sent.size() << " and receives " << received;
  return sent;
}

// A phase leaves out one chunk; which one depends on where the phase starts. For the all-reduce as
// a whole it may be any, as long as the two phases differ.
bool are_two_phases(const Sizes& sent, const Sizes& chunks) {
  const auto size = static_cast<int>(chunks.size());
  const auto half = static_cast<std::ptrdiff_t>(sent.size() / 2);
  const bool complete = sent.size() == 2 * (chunks.size() - 1);
  for (int first = 0; first < size; ++first) {
    for (int second = 0; second < size; ++second) {
      const Sizes reduced = without(chunks, first);
      const Sizes gathered = without(chunks, second);
      const bool fits = complete ? are_sizes({sent.begin(), sent.begin() + half}, reduced) &&
                                       are_sizes({sent.begin() + half, sent.end()}, gathered)
                                 : are_sizes(sent, joined(reduced, gathered));
      if (first != second && fits) {
        return true;
      }
    }
  }
  return false;
}

Sizes record(Rank& rank, const std::string& what, const std::function<void()>& call) {
  rank.recorder().clear();
  call();
  return expect_neighbours_only(rank, rank.recorder().operations(), what);
}

void expect_ring_messages(Rank& rank, const at::Tensor& tensor) {
  const int size = rank.world_size();
  const Sizes chunks = chunk_bytes(tensor, size);
  const std::string of = " of " + std::to_string(tensor.numel()) + " elements of " +
                         c10::getDtypeNames(tensor.scalar_type()).first;
  const auto expect_phase = [&](const std::string& what, const Sizes& sent, int left_out) {
    EXPECT_TRUE(are_sizes(sent, without(chunks, left_out)))
        << what << ": this rank should send every chunk once but chunk " << left_out
        << ". In bytes, in any order and with or without the empty ones: "
        << text_of(without(chunks, left_out)) << "; it sends " << text_of(sent);
  };
  expect_phase(
      "reduce-scatter" + of,
      record(rank, "reduce-scatter" + of, [&] { ring_reduce_scatter(tensor, rank.group()); }),
      rank.rank());
  expect_phase("all-gather" + of,
               record(rank, "all-gather" + of, [&] { ring_all_gather(tensor, rank.group()); }),
               (rank.rank() + 1) % size);
  const Sizes sent = record(rank, "all-reduce" + of,
                            [&] { ring_all_reduce(tensor, rank.group(), ReduceOp::kSum); });
  EXPECT_TRUE(size == 1 ? sent.empty() : are_two_phases(sent, chunks))
      << "all-reduce" + of << ": this rank should send 2(N-1) = " << 2 * (size - 1)
      << " messages, in each of two phases all chunks but one, once each. The chunks have "
      << text_of(chunks) << " bytes; it sends " << text_of(sent);
}

const GradedTest kMessages{
    {.name = "each_step_sends_one_chunk_to_the_right",
     .points = 2,
     .hint = "2(N-1) sends to rank (r+1) mod N, 2(N-1) recvs from rank (r-1) mod N, and nothing "
             "else. A message is exactly its chunk of balanced_split()."},
    [] {
      run_worlds({1, 2, 3, 4, 5, 8}, [](Rank& rank) {
        const at::TensorOptions options(settings().device);
        for (const std::int64_t size : {0, 1, 7, 11, 64, 1023}) {
          expect_ring_messages(rank, at::ones({size}, options));
        }
        expect_ring_messages(rank, at::ones({5, 7}, options.dtype(at::kBFloat16)));
        expect_ring_messages(rank, at::ones({13}, options.dtype(at::kLong)));
        expect_ring_messages(rank, at::ones({9, 4}, options.dtype(at::kDouble)).t());
      });
    }};

// Every operator is watched, to find reads of a chunk in flight as well as writes.
void expect_untouched(Rank& rank, const RingCase& one) {
  const int world_size = rank.world_size();
  const at::Tensor tensor = whole_values(one, rank.rank(), world_size);
  ring_all_reduce(tensor, rank.group(), one.op);
  EXPECT_TRUE(is_close({describe(one), world_size}, tensor, combined_whole_values(one, world_size),
                       tolerance_of(one)));
  const at::Tensor again = whole_values(one, rank.rank(), world_size);
  ring_reduce_scatter(again, rank.group(), one.op);
  ring_all_gather(again, rank.group());
}

const GradedTest kInFlight{
    {.name = "nothing_touches_a_chunk_in_flight",
     .points = 1,
     .hint = "Between the launch of a send or recv and the end of wait() its memory belongs to the "
             "network: no reading of what is being received, no writing to either."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "buffers in flight are watched on the CPU only";
      }
      RankOptions options;
      options.watch_accesses = true;
      run_worlds(
          {2, 3, 4, 5},
          [](Rank& rank) {
            for (const std::int64_t size : {1, 5, 12, 257}) {
              expect_untouched(rank, {.elements = size});
              expect_untouched(rank, {.elements = size, .op = ReduceOp::kAverage});
              expect_untouched(rank, {.elements = size, .dtype = at::kLong});
            }
          },
          options);
    }};

}  // namespace

}  // namespace ddp::testing
