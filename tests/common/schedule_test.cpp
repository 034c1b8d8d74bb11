// The seed decides the order of events: what may happen in two orders does so as the schedule says,
// and as often as it is run.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "common/referee_runs.h"
#include "ddp/collectives.h"
#include "ddp/referee/client.h"
#include "ddp/referee/world.h"

namespace ddp {

namespace {

using ClientPtr = std::shared_ptr<Client>;

constexpr int kOperations = 4;
constexpr int kRuns = 5;

// Launches some all-reduces; each one's callback notes its number. Waits for the handles, and says which
// callbacks had run by then; then for the futures, and says in which order all ran.
void wait_for_handles_and_futures(const ClientPtr& client, const ProcessGroupPtr& group) {
  std::vector<WorkPtr> works;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
  std::mutex mutex;
  std::vector<std::int64_t> ran;
  for (int i = 0; i < kOperations; ++i) {
    works.push_back(all_reduce_async(at::ones({3}), group));
    const auto note = [&mutex, &ran, i](c10::ivalue::Future&) {
      const std::lock_guard lock(mutex);
      ran.push_back(i);
      return c10::IValue();
    };
    futures.push_back(works.back()->getFuture()->then(note, c10::NoneType::get()));
  }
  for (int i = 0; i < kOperations; i += 2) {  // the others complete by their futures
    works[i]->wait();
    const std::lock_guard lock(mutex);
    client->fact("ran before wait() returned", std::ranges::count(ran, i), i);
  }
  for (const auto& future : futures) {
    future->wait();
  }
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < ran.size(); ++i) {
    client->fact("ran", ran[i], static_cast<std::int64_t>(i));
  }
}

std::vector<std::int64_t> facts(const Evidence& evidence, int rank, const std::string& name) {
  std::vector<std::int64_t> numbers;
  for (const Seen& seen : evidence.of[rank]) {
    if (seen.kind == EventKind::kFact && seen.text == name) {
      numbers.push_back(seen.number);
    }
  }
  return numbers;
}

using Numbers = std::vector<std::int64_t>;

TEST(Schedule, IsItsNumber) {
  EXPECT_EQ(Schedule().number(), 0);
  EXPECT_TRUE(Schedule::of_number(0).usual());
  const Schedule schedule(12, 3, 4);
  EXPECT_EQ(schedule.number(), 120'000'300'004);
  const Schedule again = Schedule::of_number(schedule.number());
  EXPECT_EQ(again.number(), schedule.number());
  EXPECT_FALSE(Schedule(1, 3, 4).other(Choice::kPoll, 0, 2));
  EXPECT_TRUE(Schedule(1, 3, 4).other(Choice::kPoll, 0, 3));
  EXPECT_FALSE(Schedule(1, 3, 4).other(Choice::kPoll, 0, 4));
}

TEST(Schedule, CallbacksRunBeforeTheWaiterReturnsOrAfter) {
  const Evidence usual = run_as({}, wait_for_handles_and_futures);
  EXPECT_EQ(facts(usual, 0, "ran before wait() returned"), (Numbers{1, 1}));
  const Evidence other = run_as({.schedule = Schedule(1)}, wait_for_handles_and_futures);
  ASSERT_TRUE(other.reports.ok()) << other.reports.describe();
  EXPECT_EQ(facts(other, 0, "ran before wait() returned"), (Numbers{0, 0}));
  EXPECT_NE(first_of(other, 1, EventKind::kChoice), nullptr) << "it is recorded";
}

// Launches some all-reduces, waits for their futures, and says in which order callbacks ran.
void by_futures(const ClientPtr& client, const ProcessGroupPtr& group) {
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
  std::atomic<int> count = 0;
  for (int i = 0; i < kOperations; ++i) {
    const auto note = [&client, &count, i](c10::ivalue::Future&) {
      client->fact("ran", i, count++);
      return c10::IValue();
    };
    futures.push_back(
        all_reduce_async(at::ones({3}), group)->getFuture()->then(note, c10::NoneType::get()));
  }
  for (const auto& future : futures) {
    future->wait();
  }
}

// What is waited for by a handle and what completes by its future are each in order; which of both
// comes first hangs on how long a thread takes from one wait to the next.
TEST(Schedule, IsTheSameInEveryRun) {
  for (const std::int64_t draw : {0, 1, 7, 8}) {
    const auto run = [draw] {
      const World world{.schedule = Schedule(draw)};
      const Evidence waits = run_as(world, wait_for_handles_and_futures);
      const Evidence completions = run_as(world, by_futures);
      std::vector<Numbers> all;
      for (const int rank : {0, 1}) {
        all.push_back(facts(waits, rank, "ran before wait() returned"));
        all.push_back(facts(completions, rank, "ran"));
        EXPECT_EQ(all.back().size(), kOperations);
      }
      return all;
    };
    const std::vector<Numbers> first = run();
    for (int i = 1; i < kRuns; ++i) {
      EXPECT_EQ(run(), first) << "draw " << draw << ", run " << i;
    }
  }
}

TEST(Schedule, AFutureMayCompleteBeforeAnEarlierOne) {
  EXPECT_EQ(facts(run_as({}, by_futures), 0, "ran"), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(facts(run_as({.schedule = Schedule(1)}, by_futures), 0, "ran"), (Numbers{3, 2, 1, 0}));
}

TEST(Schedule, WhoWaitsForAFutureMayGoOnBeforeItsCallbacks) {
  const auto wait = [](const ClientPtr& client, const ProcessGroupPtr& group) {
    for (int i = 0; i < kOperations; ++i) {
      const auto future = all_reduce_async(at::ones({3}), group)->getFuture();
      const auto ran = std::make_shared<std::atomic<bool>>(false);
      future->addCallback([ran](c10::ivalue::Future&) { *ran = true; });
      future->wait();
      client->fact("ran", *ran ? 1 : 0);
    }
  };
  EXPECT_EQ(facts(run_as({.schedule = Schedule(1)}, wait), 1, "ran"), (Numbers{0, 0, 0, 0}));
}

TEST(Schedule, APollIsToldByItsNumber) {
  const auto polls = [](const ClientPtr& client, const ProcessGroupPtr& group) {
    const WorkPtr work = all_reduce_async(at::ones({3}), group);
    int count = 1;
    while (!work->isCompleted()) {
      ++count;
    }
    client->fact("polls", count);
  };
  for (int i = 0; i < kRuns; ++i) {
    EXPECT_EQ(facts(run_as({}, polls), 1, "polls"), Numbers{2});
    EXPECT_EQ(facts(run_as({.schedule = Schedule(1)}, polls), 1, "polls"), Numbers{5});
  }
}

// Ranks that all send first deadlock in the usual order, see ADeadlockIsKnownAtOnce.
TEST(Schedule, ASendMayCompleteBeforeItsRecv) {
  const auto send_first = [](const ClientPtr& client, const ProcessGroupPtr& group) {
    at::Tensor taken = at::zeros({2});
    for (const double value : {1.0, 2.0}) {
      send(at::full({2}, value + client->rank()), 1 - client->rank(), group);
    }
    for (int i = 0; i < 2; ++i) {
      recv(taken, 1 - client->rank(), group);
      client->value(i == 0 ? "first" : "second", taken);
    }
  };
  const Evidence evidence = run_as({.schedule = Schedule(1)}, send_first);
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_EQ(value_of(evidence, 0, "first")[0].item<double>(), 2);
  EXPECT_EQ(value_of(evidence, 0, "second")[0].item<double>(), 3);
}

}  // namespace

}  // namespace ddp
