// What may happen in two orders happens in the same one in every run, and no clock decides it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
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

TEST(Order, CallbacksRunBeforeTheWaiterReturnsOrAfter) {
  const Evidence usual = run_as({}, wait_for_handles_and_futures);
  EXPECT_EQ(facts(usual, 0, "ran before wait() returned"), (Numbers{1, 1}));
  const Evidence late = run_as({.late_callbacks = true}, wait_for_handles_and_futures);
  ASSERT_TRUE(late.reports.ok()) << late.reports.describe();
  EXPECT_EQ(facts(late, 0, "ran before wait() returned"), (Numbers{0, 0}));
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
TEST(Order, IsTheSameInEveryRun) {
  for (const bool late : {false, true}) {
    const auto run = [late] {
      const World world{.late_callbacks = late};
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
      EXPECT_EQ(run(), first) << "late: " << late << ", run " << i;
    }
  }
}

TEST(Order, FuturesCompleteInTheOrderOfLaunches) {
  EXPECT_EQ(facts(run_as({}, by_futures), 0, "ran"), (Numbers{0, 1, 2, 3}));
}

TEST(Order, WhoWaitsForAFutureMayGoOnBeforeItsCallbacks) {
  const auto wait = [](const ClientPtr& client, const ProcessGroupPtr& group) {
    for (int i = 0; i < kOperations; ++i) {
      const auto future = all_reduce_async(at::ones({3}), group)->getFuture();
      const auto ran = std::make_shared<std::atomic<bool>>(false);
      future->addCallback([ran](c10::ivalue::Future&) { *ran = true; });
      future->wait();
      client->fact("ran", *ran ? 1 : 0);
    }
  };
  EXPECT_EQ(facts(run_as({.late_callbacks = true}, wait), 1, "ran"), (Numbers{0, 0, 0, 0}));
}

TEST(Order, APollIsToldByItsNumber) {
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
  }
}

// Each rank asks for what the other one launches after its own questions: all stand still, and go on.
TEST(Order, APollIsToldThatNothingComesWhereAllStandStill) {
  const Evidence evidence = run_as({}, [](const ClientPtr& client, const ProcessGroupPtr& group) {
    at::Tensor taken = at::zeros({2});
    std::vector<at::Tensor> tensors = {taken};
    const WorkPtr receiving = group->recv(tensors, 1 - client->rank(), 0);
    int completed = 0;
    for (int i = 0; i < 2;
         ++i) {  // the second is the one that asks; a third may see what the other sends
      completed += receiving->isCompleted() ? 1 : 0;
    }
    send(at::ones({2}), 1 - client->rank(), group);
    receiving->wait();
    client->fact("completed", completed);
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_EQ(facts(evidence, 0, "completed"), Numbers{0});
}

// The scenario's thread waits for an operation that the other rank launches in a callback of an earlier
// one, and the other rank likewise.
TEST(Order, CallbacksRunWhereAllWaitForThem) {
  const Evidence evidence = run_as({}, [](const ClientPtr& client, const ProcessGroupPtr& group) {
    at::Tensor taken = at::zeros({2});
    std::vector<at::Tensor> tensors = {taken};
    const int other = 1 - client->rank();
    const WorkPtr receiving = group->recv(tensors, other, 0);
    const auto future = all_reduce_async(at::ones({3}), group)->getFuture();
    std::promise<void> sent;
    future->addCallback([&](c10::ivalue::Future&) {
      send(at::ones({2}), other, group);
      sent.set_value();
    });
    receiving->wait();
    sent.get_future().wait();  // the other rank's callback may run first
    client->value("taken", taken);
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_EQ(value_of(evidence, 1, "taken")[0].item<double>(), 1);
}

}  // namespace

}  // namespace ddp
