// Every access to a buffer in flight is reported, every time.
#include "ddp/referee/poison.h"
#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

constexpr int kRepeats = 20;

// One access while the gradient of "fc.weight" is in flight in an all-reduce; 20 times, each of
// which must be reported.
void expect_race_each_time(const std::function<void(at::Tensor&)>& access,
                           const std::string& expected, bool watch) {
  testing::expect_graded_ranks_pass(2, [&](Rank& rank) {
    const std::optional<AccessWatch> watching =
        watch ? std::make_optional<AccessWatch>(*rank.checked()) : std::nullopt;
    const at::Tensor weight = at::ones({64}).set_requires_grad(true);
    rank.name({{"fc.weight", weight}});
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      weight.mutable_grad() = at::ones({64});
      const WorkPtr work = all_reduce_async(weight.grad(), rank.group());
      access(weight.mutable_grad());
      work->wait();
      const auto races = rank.checked()->races();
      ASSERT_EQ(races.size(), repeat + 1U);
      EXPECT_NE(races.back().find("the gradient of fc.weight was " + expected), std::string::npos)
          << races.back();
      EXPECT_NE(races.back().find("all-reduce #" + std::to_string(repeat)), std::string::npos)
          << races.back();
    }
  });
}

TEST(CheckedRaces, WriteByOperator) {
  expect_race_each_time([](at::Tensor& gradient) { gradient.div_(2); }, "written", false);
}

TEST(CheckedRaces, WriteOfOneElementByPointer) {
  expect_race_each_time([](at::Tensor& gradient) { gradient.data_ptr<float>()[63] = 1; },
                        "written (element 63)", false);
}

TEST(CheckedRaces, WriteThroughAView) {
  expect_race_each_time(
      [](at::Tensor& gradient) {
        gradient.view({8, 8})[3].zero_();
      },
      "written (element 24)", false);
}

TEST(CheckedRaces, ReadByOperator) {
  expect_race_each_time([](at::Tensor& gradient) { at::Tensor norm = gradient.norm(); },
                        "read by aten::", true);
}

TEST(CheckedRaces, ReadThroughAView) {
  expect_race_each_time(
      [](at::Tensor& gradient) {
        at::Tensor sum = gradient.view({8, 8})[1].sum();
      },
      "read by aten::sum", true);
}

TEST(CheckedRaces, ReadOfOneElement) {
  expect_race_each_time([](at::Tensor& gradient) { gradient[5].item<float>(); },
                        "read by aten::", true);
}

TEST(CheckedRaces, ReadShowsInWhatComesOfIt) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      for (const auto dtype : {at::kFloat, at::kDouble}) {
        const at::Tensor gradient = at::ones({10}, dtype);
        const WorkPtr work = all_reduce_async(gradient, rank.group());
        const at::Tensor update = at::ones({10}, dtype) - 0.1 * gradient;
        work->wait();
        EXPECT_TRUE(find_poison(update).has_value());
        EXPECT_FALSE(find_poison(gradient).has_value());
        EXPECT_TRUE(gradient.eq(2).all().item<bool>()) << "the result itself is right";
      }
    }
  });
}

TEST(CheckedRaces, LooksAtShapeAndTheLikeAreFree) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const AccessWatch watch(*rank.checked());
    const at::Tensor gradient = at::ones({4, 4});
    const at::Tensor other = at::ones({4, 4});
    const WorkPtr work = all_reduce_async(gradient, rank.group());
    EXPECT_EQ(gradient.sizes(), other.sizes());
    const at::Tensor fresh = at::zeros_like(gradient) + at::empty_like(gradient).fill_(1);
    const at::Tensor view = gradient.view({16}).narrow(0, 0, 2).detach();
    other.mul_(fresh);
    work->wait();
    view.mul_(2);
    EXPECT_EQ(rank.checked()->races(), std::vector<std::string>{});
  });
}

TEST(CheckedRaces, WhatIsSentMayBeReadButNotWritten) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const AccessWatch watch(*rank.checked());
    const at::Tensor outgoing = at::ones({5});
    const at::Tensor incoming = at::zeros({5});
    const WorkPtr sending = send_async(outgoing, 1 - rank.rank(), rank.group());
    const WorkPtr receiving = recv_async(incoming, 1 - rank.rank(), rank.group());
    EXPECT_EQ(outgoing.sum().item<float>(), 5);
    EXPECT_EQ(rank.checked()->races().size(), 0U);
    outgoing.mul_(2);
    sending->wait();
    receiving->wait();
    EXPECT_GE(rank.checked()->races().size(), 1U);
    EXPECT_EQ(incoming.sum().item<float>(), 5) << "what was sent is what it was at the launch";
  });
}

TEST(CheckedRaces, LaunchOnABufferInFlight) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor buffer = at::ones({10});
    const WorkPtr first = all_reduce_async(buffer.narrow(0, 0, 6), rank.group());
    const WorkPtr second = all_reduce_async(buffer.narrow(0, 5, 5), rank.group());
    const auto races = rank.checked()->races();
    ASSERT_EQ(races.size(), 1U);
    EXPECT_NE(races[0].find("all-reduce #1"), std::string::npos) << races[0];
    EXPECT_NE(races[0].find("all-reduce #0"), std::string::npos) << races[0];
    first->wait();
    second->wait();
  });
}

TEST(CheckedRaces, ForgottenWaitsArePending) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor waited = at::ones({1});
    const at::Tensor forgotten = at::ones({2});
    rank.name({{"forgotten", forgotten}});
    const WorkPtr first = all_reduce_async(waited, rank.group());
    static_cast<void>(all_reduce_async(forgotten, rank.group()));
    EXPECT_EQ(rank.checked()->pending().size(), 2U);
    first->wait();
    const auto pending = rank.checked()->pending();
    ASSERT_EQ(pending.size(), 1U);
    EXPECT_NE(pending[0].find("forgotten"), std::string::npos) << pending[0];
    EXPECT_EQ(rank.checked()->races().size(), 0U);
  });
}

}  // namespace
}  // namespace ddp
