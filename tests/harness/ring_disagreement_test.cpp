// A ring whose ranks were given different tensors: every rank gets a report, and none hangs.
#include <regex>

#include "ddp/balanced_split.h"
#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

// The reduce-scatter of stage 05, whose library is not loaded here.
void reduce_around_the_ring(Rank& rank, const at::Tensor& row) {
  const int size = rank.world_size();
  const auto chunk = [&](int number) {
    const Chunk found = balanced_split(row.numel(), size)[(number + 2 * size) % size];
    return row.narrow(0, found.begin, found.size);
  };
  for (int step = 1; step < size; ++step) {
    const at::Tensor sum = chunk(rank.rank() - step - 1);
    const at::Tensor received = at::empty_like(sum);
    const WorkPtr receiving = recv_async(received, (rank.rank() + size - 1) % size, rank.group());
    const WorkPtr sending =
        send_async(chunk(rank.rank() - step), (rank.rank() + 1) % size, rank.group());
    receiving->wait();
    sending->wait();
    sum.add_(received);
  }
}

// Rank 2 of 4 has a different tensor from the others' 12 elements of float32.
void expect_heard_of_everywhere(std::int64_t elements, at::ScalarType dtype) {
  constexpr int kOdd = 2;
  const RankReports reports = testing::run_graded_ranks({.world_size = 4}, [&](Rank& rank) {
    reduce_around_the_ring(rank,
                           rank.rank() == kOdd ? at::ones({elements}, dtype) : at::ones({12}));
  });
  const std::regex heard("two ends of a message disagree|rank . has failed");
  for (const RankReport& report : reports.ranks) {
    EXPECT_TRUE(std::regex_search(report.reason, heard)) << reports.describe();
  }
  EXPECT_NE(reports.describe().find("rank 2: "), std::string::npos) << reports.describe();
}

TEST(RingDisagreement, OnTheSize) { expect_heard_of_everywhere(17, at::kFloat); }

TEST(RingDisagreement, OnTheDtype) { expect_heard_of_everywhere(12, at::kDouble); }

}  // namespace
}  // namespace ddp
