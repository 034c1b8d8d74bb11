// Ranks that disagree, that wait for each other, and that launch from several threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "ddp/collectives.h"
#include "harness/error_of.h"
#include "harness/referee_runs.h"

namespace ddp {

namespace {

TEST(Referee, RanksThatDisagreeAreNamed) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    all_reduce(at::zeros({2 + client->rank()}), group);
  });
  ASSERT_FALSE(evidence.reports.ok());
  const std::string text = evidence.reports.describe();
  EXPECT_NE(text.find("the ranks disagree on collective #0"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: all-reduce (sum) of a tensor float32 [3]"), std::string::npos)
      << text;
  EXPECT_NE(text.find("at tests/harness/referee_waits_test.cpp:"), std::string::npos) << text;
}

TEST(Referee, WhoWaitsForAnEndedRankIsToldSo) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    if (client->rank() == 0) {
      all_reduce(at::zeros({2}), group);
    }
  });
  const std::string text = evidence.reports.describe();
  EXPECT_NE(text.find("rank 1 has already returned without joining it\n    at tests/harness/"),
            std::string::npos)
      << text;
}

TEST(Referee, ADeadlockIsKnownAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    send(at::zeros({2}), 1 - client->rank(), group);
    recv(at::zeros({2}), 1 - client->rank(), group);
  });
  const std::string text = evidence.reports.describe();
  EXPECT_NE(text.find("until rank 1 receives it\n    rank 1 waits for send #0"), std::string::npos)
      << text;
  EXPECT_NE(text.find("last seen: waits for send #0"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Referee, ADeadlockNamesItsCircle) {
  const Evidence evidence = run_as({.ranks = 4}, [](const auto& client, const auto& group) {
    if (client->rank() == 0) {
      return recv(at::zeros({2}), 1, group);  // waits for the circle, and is no part of it
    }
    recv(at::zeros({2}), client->rank() == 1 ? 3 : client->rank() - 1, group);
  });
  const std::string text = evidence.reports.describe();
  EXPECT_NE(text.find("in a circle: rank 1 -> rank 3 -> rank 2 -> rank 1:\n"), std::string::npos)
      << text;
}

// Each of two threads has its own two partners, one for each tag.
TEST(Referee, TwoThreadsOfARankMayLaunch) {
  constexpr int kMessages = 100;
  const Evidence evidence = run_as({.ranks = 3}, [](const auto& client, const auto& group) {
    std::array<std::thread, 2> threads;
    std::array<at::Tensor, 2> sums = {at::zeros({1}), at::zeros({1})};
    for (int tag : {0, 1}) {
      threads[tag] = std::thread([&, tag] {
        const int step = tag == 0 ? 1 : 2;
        for (int i = 0; i < kMessages; ++i) {
          const at::Tensor incoming = at::zeros({1});
          const WorkPtr sending = send_async(at::full({1}, 10.0 * client->rank() + tag),
                                             (client->rank() + step) % 3, group, tag);
          recv(incoming, (client->rank() + 3 - step) % 3, group, tag);
          sending->wait();
          sums[tag] += incoming;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    client->value("sums", at::cat({sums[0], sums[1]}));
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  for (int rank = 0; rank < 3; ++rank) {
    const at::Tensor sums = value_of(evidence, rank, "sums");
    EXPECT_EQ(sums[0].item<double>(), kMessages * 10.0 * ((rank + 2) % 3));
    EXPECT_EQ(sums[1].item<double>(), kMessages * (10.0 * ((rank + 1) % 3) + 1));
  }
}

// The order of two threads' collectives is up to chance, and may differ between ranks.
TEST(Referee, CollectivesOfTwoThreadsAreRightOrRefused) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    const auto launch = [&](std::int64_t size) {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor tensor = at::ones({size});
        all_reduce(tensor, group);
        TORCH_CHECK(tensor.eq(2).all().template item<bool>(), "a wrong sum");
      }
    };
    std::array<std::string, 2> refused;
    std::thread other([&] { refused[1] = testing::error_of([&] { launch(3); }); });
    refused[0] = testing::error_of([&] { launch(2); });
    other.join();
    for (const std::string& text : refused) {
      client->threw("launches", text);
    }
  });
  for (int rank : {0, 1}) {
    int threads = 0;
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == EventKind::kThrew) {
        ++threads;
        EXPECT_TRUE(seen.detail == "no error" ||
                    seen.detail.starts_with("the ranks disagree on collective") ||
                    seen.detail.starts_with("waits in vain"))
            << seen.detail;
      }
    }
    EXPECT_EQ(threads, 2) << evidence.reports.describe();
  }
}

TEST(Referee, AnEndlessLoopIsToldFromAWait) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    if (client->rank() == 1) {
      volatile bool forever = true;
      while (forever) {
      }
    }
    all_reduce(at::zeros({2}), group);
  });
  ASSERT_EQ(evidence.reports.culprit, 1) << evidence.reports.describe();
  EXPECT_NE(evidence.reports.describe().find("computes without end"), std::string::npos);
}

TEST(Referee, WhoSaysThingsWithoutEndIsStopped) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto&) {
    while (client->rank() == 1) {
      client->fact("the same again", 1);
    }
  });
  ASSERT_EQ(evidence.reports.culprit, 1) << evidence.reports.describe();
  EXPECT_NE(evidence.reports.describe().find("told the network of more than"), std::string::npos);
}

}  // namespace

}  // namespace ddp
