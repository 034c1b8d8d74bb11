// Ranks that disagree, or never join: the report names ranks, collective and tensor.
#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

constexpr std::chrono::milliseconds kDeadline{2'000};

RankReports run(int world_size, const std::function<void(Rank&, const at::Tensor&)>& body) {
  return testing::run_graded_ranks({.world_size = world_size, .deadline = kDeadline},
                                   [&](Rank& rank) {
                                     const at::Tensor weight = at::ones({4, 2});
                                     rank.name({{"fc1.weight", weight}});
                                     body(rank, weight);
                                   });
}

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in:\n" << text;
  }
}

// Rank 2 of 3 calls something other than the others, which all-reduce "fc1.weight".
void expect_disagreement(const std::function<void(Rank&, const at::Tensor&)>& otherwise,
                         const std::string& in_its_words) {
  const RankReports reports = run(3, [&](Rank& rank, const at::Tensor& weight) {
    all_reduce(weight, rank.group());
    if (rank.rank() == 2) {
      otherwise(rank, weight);
    } else {
      all_reduce(weight, rank.group());
    }
  });
  ASSERT_FALSE(reports.ok());
  for (const RankReport& report : reports.ranks) {
    EXPECT_EQ(report.outcome, RankOutcome::kThrew) << reports.describe();
    expect_contains(report.reason, {"disagree on collective #1", "rank 0: all-reduce (sum)",
                                    "rank 1: all-reduce (sum) of fc1.weight, float32 [4, 2]",
                                    "rank 2: " + in_its_words});
  }
}

TEST(CheckedDisagreement, OnShape) {
  expect_disagreement(
      [](Rank& rank, const at::Tensor& weight) {
        all_reduce(weight.view({2, 4}), rank.group());
      },
      "all-reduce (sum) of fc1.weight, float32 [2, 4]");
}

TEST(CheckedDisagreement, OnSize) {
  expect_disagreement(
      [](Rank& rank, const at::Tensor& weight) { all_reduce(weight[0], rank.group()); },
      "all-reduce (sum) of fc1.weight, float32 [2]");
}

TEST(CheckedDisagreement, OnDtype) {
  expect_disagreement(
      [](Rank& rank, const at::Tensor& weight) {
        all_reduce(weight.to(at::kDouble), rank.group());
      },
      "all-reduce (sum) of a tensor float64 [4, 2], float64 [4, 2]");
}

TEST(CheckedDisagreement, OnReduction) {
  expect_disagreement(
      [](Rank& rank, const at::Tensor& weight) {
        all_reduce(weight, rank.group(), ReduceOp::kMax);
      },
      "all-reduce (maximum)");
}

TEST(CheckedDisagreement, OnTheCollective) {
  expect_disagreement([](Rank& rank, const at::Tensor& weight) { broadcast(weight, rank.group()); },
                      "broadcast with root 0 of fc1.weight");
  expect_disagreement([](Rank& rank, const at::Tensor&) { barrier(rank.group()); }, "barrier");
}

TEST(CheckedDisagreement, OnTheRoot) {
  const RankReports reports = run(3, [](Rank& rank, const at::Tensor& weight) {
    broadcast(weight, rank.group(), rank.rank() == 2 ? 1 : 0);
  });
  for (const RankReport& report : reports.ranks) {
    expect_contains(report.reason, {"collective #0", "rank 0: broadcast with root 0",
                                    "rank 2: broadcast with root 1", "fc1.weight"});
  }
}

TEST(CheckedDisagreement, OnAMessage) {
  const RankReports reports = run(2, [](Rank& rank, const at::Tensor& weight) {
    rank.rank() == 0 ? send(weight, 1, rank.group()) : recv(weight[0], 0, rank.group());
  });
  for (const RankReport& report : reports.ranks) {
    EXPECT_EQ(report.outcome, RankOutcome::kThrew) << reports.describe();
    expect_contains(report.reason, {"two ends of a message", "rank 0: send to rank 1 of fc1.weight",
                                    "rank 1: recv from rank 0 of fc1.weight", "[4, 2]", "[2]"});
  }
}

// Rank 1 returns, dies, throws or hangs while the others need it.
RankReports run_without_rank_1(const std::function<void()>& instead) {
  return run(3, [&](Rank& rank, const at::Tensor& weight) {
    all_reduce(weight, rank.group());
    if (rank.rank() == 1) {
      instead();
    } else {
      all_reduce(weight, rank.group());
    }
  });
}

TEST(CheckedDisagreement, RankThatReturnsWithoutJoining) {
  const RankReports reports = run_without_rank_1([] {});
  ASSERT_FALSE(reports.ok());
  EXPECT_NE(reports.culprit, 1) << "it did nothing wrong that shows";
  EXPECT_EQ(reports.ranks[1].outcome, RankOutcome::kFinished);
  for (const int rank : {0, 2}) {
    expect_contains(reports.ranks[rank].reason,
                    {"all-reduce #1 of fc1.weight", "rank 1 has already returned without joining"});
  }
}

TEST(CheckedDisagreement, RankThatDies) {
  const RankReports reports = run_without_rank_1([] { std::abort(); });
  EXPECT_EQ(reports.culprit, 1);
  EXPECT_EQ(reports.ranks[1].outcome, RankOutcome::kSignalled);
  expect_contains(reports.ranks[1].activity, {"after all-reduce #0 of fc1.weight (32 bytes)"});
  for (const int rank : {0, 2}) {
    EXPECT_EQ(reports.ranks[rank].outcome, RankOutcome::kStopped) << reports.describe();
    expect_contains(reports.ranks[rank].reason,
                    {"all-reduce #1 of fc1.weight", "rank 1 is dead without joining"});
  }
}

TEST(CheckedDisagreement, RankThatThrowsIsTheCulprit) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    const RankReports reports = run_without_rank_1([] { throw std::runtime_error("my fault"); });
    EXPECT_EQ(reports.culprit, 1) << reports.describe();
    EXPECT_EQ(reports.ranks[1].reason, "my fault");
    for (const int rank : {0, 2}) {
      EXPECT_EQ(reports.ranks[rank].outcome, RankOutcome::kStopped) << reports.describe();
      expect_contains(reports.ranks[rank].reason, {"rank 1 has failed without joining"});
    }
  }
}

TEST(CheckedDisagreement, RankThatHangsIsTheCulprit) {
  const RankReports reports = run_without_rank_1([] {
    volatile bool on = true;
    while (on) {
    }
  });
  EXPECT_EQ(reports.culprit, 1);
  for (const RankReport& report : reports.ranks) {
    EXPECT_EQ(report.outcome, RankOutcome::kTimedOut) << reports.describe();
  }
  expect_contains(reports.ranks[0].activity, {"waits for all-reduce #1 of fc1.weight (32 bytes)"});
  expect_contains(reports.ranks[1].activity, {"runs its own code after all-reduce #0"});
}

TEST(CheckedDisagreement, BlockingSendsAroundARingHangAndSayWhere) {
  const RankReports reports = run(3, [](Rank& rank, const at::Tensor& weight) {
    send(weight, (rank.rank() + 1) % 3, rank.group());
    recv(weight, (rank.rank() + 2) % 3, rank.group());
  });
  ASSERT_FALSE(reports.ok());
  for (const RankReport& report : reports.ranks) {
    EXPECT_EQ(report.outcome, RankOutcome::kTimedOut) << reports.describe();
    expect_contains(report.activity, {"waits for send #0 of fc1.weight"});
  }
}

TEST(CheckedDisagreement, MessageThatNobodyTakes) {
  const RankReports reports = run(2, [](Rank& rank, const at::Tensor& weight) {
    if (rank.rank() == 0) {
      send(weight, 1, rank.group());
    }
  });
  EXPECT_EQ(reports.culprit, 0);
  expect_contains(reports.ranks[0].reason,
                  {"send #0 of fc1.weight", "rank 1 has already returned without a recv for it"});
}

TEST(CheckedDisagreement, FutureFailsToo) {
  const RankReports reports = run(2, [](Rank& rank, const at::Tensor& weight) {
    const at::Tensor tensor = rank.rank() == 0 ? weight : weight[0];
    all_reduce_async(tensor, rank.group())->getFuture()->waitAndThrow();
  });
  for (const RankReport& report : reports.ranks) {
    EXPECT_EQ(report.outcome, RankOutcome::kThrew) << reports.describe();
    expect_contains(report.reason, {"disagree on collective #0", "fc1.weight"});
  }
}

}  // namespace
}  // namespace ddp
