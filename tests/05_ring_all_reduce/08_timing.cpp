#include <ATen/ATen.h>

#include <algorithm>

#include "ring_data.h"
#include "support/grading.h"

// How long an all-reduce takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

std::int64_t time_of_message(Rank& rank, std::int64_t bytes) {
  return cost_ns(rank.network().network(), c10d::OpType::SEND, bytes, rank.world_size());
}

std::int64_t time_of_all_reduce(Rank& rank, const at::Tensor& tensor) {
  const std::int64_t start = rank.network().start_step();
  ring_all_reduce(tensor, rank.group());
  return rank.network().step_end() - start;
}

std::string why(std::int64_t took, std::int64_t longest) {
  return took > longest
             ? " (longer: in each step a rank should send and receive at the same time, so that "
               "both ways of its port are busy. One that sends first and receives then, or "
               "receives first, as in \"even ranks send, odd ranks receive\", takes up to twice as "
               "long. Or a message waits for another than the one that it needs)"
             : " (shorter: fewer messages, or fewer bytes)";
}

void expect_time_of_equal_chunks(Rank& rank, std::int64_t chunk_elements) {
  const at::Tensor tensor = at::ones({rank.world_size() * chunk_elements}, settings().device);
  const std::int64_t steps = 2 * (rank.world_size() - 1);
  const std::int64_t expected = steps * time_of_message(rank, chunk_elements * 4);
  const std::int64_t took = time_of_all_reduce(rank, tensor);
  EXPECT_EQ(took, expected) << "virtual ns of an all-reduce of S = " << tensor.nbytes()
                            << " bytes: 2(N-1) (alpha + S/N beta) is " << expected << ", here "
                            << took << why(took, expected);
}

// The sizes of every rank's sends, in bytes: [rank][step].
using Messages = std::vector<std::vector<std::int64_t>>;

Messages gather_messages(Rank& rank, const std::vector<RecordedOperation>& operations) {
  std::vector<std::int64_t> sent(2 * (rank.world_size() - 1), 0);
  std::size_t next = 0;
  for (const RecordedOperation& operation : operations) {
    if (operation.type == c10d::OpType::SEND && next < sent.size()) {
      sent[next++] = operation.bytes;
    }
  }
  EXPECT_EQ(next, sent.size()) << "2(N-1) messages should be sent; see the test "
                                  "each_step_sends_one_chunk_to_the_right";
  const at::Tensor all =
      all_gather(at::tensor(sent, at::kLong).to(settings().device), rank.group()).cpu();
  Messages messages;
  for (int other = 0; other < rank.world_size(); ++other) {
    const auto* first = all[other].const_data_ptr<std::int64_t>();
    messages.emplace_back(first, first + sent.size());
  }
  return messages;
}

// The messages of the previous step for which a message from r to r + 1 has to wait.
enum class Waits {
  kForPorts,  // r to r + 1: the least that is possible
  kForAll,    // also r - 1 to r, whose data r passes on, and r + 1 to r + 2: ranks that wait for
              // both of their messages before the next step
};

// The end of this rank's last message.
std::int64_t critical_path(Rank& rank, const Messages& messages, Waits waits) {
  const int size = rank.world_size();
  std::vector<std::int64_t> ends(size, 0);
  for (std::size_t step = 0; step < messages[0].size(); ++step) {
    const std::vector<std::int64_t> before = ends;
    for (int r = 0; r < size; ++r) {
      const std::int64_t start =
          waits == Waits::kForPorts
              ? before[r]
              : std::max({before[(r + size - 1) % size], before[r], before[(r + 1) % size]});
      ends[r] = start + time_of_message(rank, messages[r][step]);
    }
  }
  return std::max(ends[rank.rank()], ends[(rank.rank() + size - 1) % size]);
}

// Chunks differ by an element, so the time shows which message waits for which.
void expect_time_of_unequal_chunks(Rank& rank, std::int64_t elements) {
  const at::Tensor tensor = at::ones({elements}, settings().device);
  rank.recorder().clear();
  const std::int64_t took = time_of_all_reduce(rank, tensor);
  const Messages messages = gather_messages(rank, rank.recorder().operations());
  const std::int64_t shortest = critical_path(rank, messages, Waits::kForPorts);
  const std::int64_t longest = critical_path(rank, messages, Waits::kForAll);
  EXPECT_TRUE(shortest <= took && took <= longest)
      << "virtual ns of an all-reduce of " << elements << " elements of float32, which the world "
      << "size does not divide: by the critical path of the messages " << shortest << " to "
      << longest << ", here " << took << why(took, longest);
}

const GradedTest kTime{
    {.name = "time_is_the_rings",
     .points = 2,
     .hint = "2(N-1) steps of alpha + S/N beta. In each of them a rank sends and receives at the "
             "same time: launch the recv and the send before you wait for either."},
    [] {
      for (const NetworkModel& network :
           {NetworkModel{.alpha_ns = 10'000, .beta_ns_per_byte = 0.25},
            NetworkModel{.alpha_ns = 0, .beta_ns_per_byte = 3.0}}) {
        RankOptions options;
        options.network = network;
        run_worlds(
            {1, 2, 3, 4, 8},
            [](Rank& rank) {
              for (const std::int64_t chunk : {1, 50, 4096}) {
                expect_time_of_equal_chunks(rank, chunk);
              }
              if (rank.world_size() > 2) {
                for (const std::int64_t elements : {11, 1003}) {
                  expect_time_of_unequal_chunks(rank, elements);
                }
              }
            },
            options);
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }};

}  // namespace

}  // namespace ddp::testing
