// A wait at a place where waiting is forbidden is reported, and then continues.
#include <thread>

#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

WorkPtr launch(Rank& rank, at::Tensor& gradient) {
  gradient = at::ones({16});
  rank.name({{"gradient", gradient}});
  return all_reduce_async(gradient, rank.group());
}

bool says(const std::vector<std::string>& races, const std::string& text) {
  return std::any_of(races.begin(), races.end(),
                     [&](const std::string& race) { return race.find(text) != std::string::npos; });
}

// Launches two all-reduces while completions are held, waits for the first in some way, which must
// be reported. The second must complete afterwards.
void expect_found(const std::function<void(const WorkPtr&)>& wait, const std::string& finding) {
  testing::expect_graded_ranks_pass(2, [&](Rank& rank) {
    at::Tensor first;
    at::Tensor second;
    WorkPtr later;
    {
      const HeldCompletions held(*rank.checked());
      const WorkPtr work = launch(rank, first);
      later = launch(rank, second);
      EXPECT_TRUE(rank.checked()->races().empty());
      wait(work);
      EXPECT_EQ(first[0].item<float>(), 2) << "the result must be there after the wait";
    }
    later->wait();
    EXPECT_EQ(second[0].item<float>(), 2);
    const auto races = rank.checked()->races();
    EXPECT_EQ(races.size(), 1U);
    EXPECT_TRUE(says(races, "all-reduce #0 of gradient " + finding))
        << (races.empty() ? "nothing was found" : races[0]);
  });
}

TEST(CheckedHold, FindsWorkWait) {
  expect_found([](const WorkPtr& work) { work->wait(); }, "was waited for inside backward");
}

TEST(CheckedHold, FindsPollingLoop) {
  expect_found(
      [](const WorkPtr& work) {
        while (!work->isCompleted()) {
        }
      },
      "was asked for its completion 64 times inside backward");
}

TEST(CheckedHold, FindsFutureWait) {
  expect_found([](const WorkPtr& work) { work->getFuture()->wait(); },
               "was waited for inside backward");
}

TEST(CheckedHold, FindsWaitForAFutureOfAFuture) {
  expect_found(
      [](const WorkPtr& work) {
        const auto chained = work->getFuture()->then(
            [](c10::ivalue::Future& done) { return done.value(); }, c10::ListType::ofTensors());
        chained->wait();
      },
      "was waited for inside backward");
}

TEST(CheckedHold, FindsWaitForAFutureThatComesLate) {
  expect_found(
      [](const WorkPtr& work) {
        while (work->isCompleted()) {
        }
        // By then the data may well have been transferred.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        work->getFuture()->wait();
      },
      "was waited for inside backward");
}

TEST(CheckedHold, FindsWaitOnAnotherThread) {
  expect_found(
      [](const WorkPtr& work) {
        std::thread helper([&] { work->wait(); });
        helper.join();
      },
      "was waited for inside backward");
}

TEST(CheckedHold, FindsPollingOnAnotherThread) {
  expect_found(
      [](const WorkPtr& work) {
        std::thread helper([&] {
          while (!work->isCompleted()) {
            std::this_thread::yield();
          }
        });
        helper.join();
      },
      "was waited for inside backward");
}

// Calls that do not block the holder are allowed, and nothing is delivered early.
TEST(CheckedHold, AllowsWhatDoesNotWait) {
  testing::expect_graded_ranks_pass(3, [](Rank& rank) {
    at::Tensor by_work;
    at::Tensor by_future;
    at::Tensor by_thread;
    WorkPtr work;
    c10::intrusive_ptr<c10::ivalue::Future> future;
    std::thread helper;
    {
      const HeldCompletions held(*rank.checked());
      work = launch(rank, by_work);
      future = launch(rank, by_future)->getFuture();
      helper = std::thread([other = launch(rank, by_thread)] { other->wait(); });
      for (int poll = 0; poll < 10; ++poll) {
        EXPECT_FALSE(work->isCompleted());
        EXPECT_FALSE(future->completed());
      }
    }
    future->wait();
    work->wait();
    helper.join();
    for (const at::Tensor& tensor : {by_work, by_future, by_thread}) {
      EXPECT_EQ(tensor[0].item<float>(), 3);
    }
    EXPECT_TRUE(rank.checked()->races().empty()) << rank.checked()->races()[0];
    EXPECT_TRUE(rank.checked()->pending().empty());
  });
}

TEST(CheckedHold, EndsWithItsScope) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    for (int step = 0; step < 3; ++step) {
      at::Tensor tensor;
      WorkPtr work;
      {
        const HeldCompletions held(*rank.checked());
        work = launch(rank, tensor);
      }
      work->wait();
      EXPECT_EQ(tensor[0].item<float>(), 2);
    }
    EXPECT_TRUE(rank.checked()->races().empty());
  });
}

}  // namespace
}  // namespace ddp
