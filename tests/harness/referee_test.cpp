#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "ddp/collectives.h"
#include "ddp/libtorch_versions.h"
#include "harness/referee_runs.h"

namespace ddp {

namespace {

void go_to(const std::shared_ptr<Client>& client, Phase phase) { client->go_to({.phase = phase}); }

TEST(Referee, MovesTheDataOfCollectives) {
  const Evidence evidence = run_as({.ranks = 3}, [](const auto& client, const auto& group) {
    const double mine = client->rank() + 1;
    at::Tensor sum = at::full({3}, mine);
    all_reduce(sum, group);
    client->value("sum", sum);
    at::Tensor average = at::full({2}, mine, at::kDouble);
    all_reduce(average, group, ReduceOp::kAverage);
    client->value("average", average);
    at::Tensor from_2 = at::full({2}, mine);
    broadcast(from_2, group, 2);
    client->value("broadcast", from_2);
    client->value("gathered", all_gather(at::full({1}, mine), group));
    at::Tensor given = at::arange(6).to(at::kFloat) + 10 * mine;
    at::Tensor taken = at::zeros({6});
    std::vector<std::int64_t> equal;
    ((*group).*kAllToAllSingle)(taken, given, equal, equal, {})->wait();
    client->value("taken", taken);
    std::vector<at::Tensor> part = {at::zeros({2})};
    std::vector<std::vector<at::Tensor>> parts = {
        {given.chunk(3)[0], given.chunk(3)[1], given.chunk(3)[2]}};
    group->reduce_scatter(part, parts)->wait();
    client->value("part", part[0]);
    barrier(group);
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(value_of(evidence, rank, "sum").equal(at::full({3}, 6.0)));
    EXPECT_TRUE(value_of(evidence, rank, "average").equal(at::full({2}, 2.0, at::kDouble)));
    EXPECT_TRUE(value_of(evidence, rank, "broadcast").equal(at::full({2}, 3.0)));
    EXPECT_TRUE(
        value_of(evidence, rank, "gathered").flatten().equal(at::tensor({1.0F, 2.0F, 3.0F})));
    const at::Tensor own = at::arange(2 * rank, 2 * rank + 2).to(at::kFloat);
    EXPECT_TRUE(value_of(evidence, rank, "taken").equal(at::cat({own + 10, own + 20, own + 30})));
    EXPECT_TRUE(value_of(evidence, rank, "part").equal(own * 3 + 60));
  }
}

TEST(Referee, MessagesArriveByGroupAndTag) {
  const World world{.ranks = 3, .subgroups = {{2, 0}}};
  const Evidence evidence = run_as(world, [](const auto& client, const auto& group) {
    if (client->rank() == 1) {
      return;
    }
    const auto pair = make_group(client, 1);  // whose rank 0 is rank 2
    at::Tensor first = at::zeros({1});
    at::Tensor second = at::zeros({1});
    if (client->rank() == 2) {
      const WorkPtr one = send_async(at::full({1}, 1.0), 0, group, 7);
      send(at::full({1}, 2.0), 1, pair, 7);
      one->wait();
    } else {
      recv(second, 0, pair, 7);
      recv(first, 2, group, 7);
      client->value("first", first);
      client->value("second", second);
    }
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_EQ(value_of(evidence, 0, "first").item<float>(), 1);
  EXPECT_EQ(value_of(evidence, 0, "second").item<float>(), 2);
}

// Waits by handle, by future, and by a thread that backward waits for.
TEST(Referee, FindsEveryKindOfWaitInBackward) {
  const std::vector<std::function<void(const WorkPtr&)>> waits = {
      [](const WorkPtr& work) { work->wait(); },
      [](const WorkPtr& work) { work->getFuture()->wait(); },
      [](const WorkPtr& work) { std::thread([&] { work->wait(); }).join(); },
      [](const WorkPtr& work) {
        while (!work->isCompleted()) {
        }
      }};
  for (const auto& wait : waits) {
    const Evidence evidence = run_as({}, [&](const auto& client, const auto& group) {
      go_to(client, Phase::kBackward);
      const at::Tensor tensor = at::ones({2});
      const WorkPtr work = all_reduce_async(tensor, group);
      wait(work);
      go_to(client, Phase::kFinish);
      client->value("sum", tensor);
    });
    ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
    const bool found = first_of(evidence, 0, EventKind::kBlocked) != nullptr ||
                       first_of(evidence, 1, EventKind::kBlocked) != nullptr;
    EXPECT_TRUE(found);
    EXPECT_TRUE(value_of(evidence, 0, "sum").equal(at::full({2}, 2.0)));
  }
}

TEST(Referee, ALookIsNoWait) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    go_to(client, Phase::kBackward);
    const WorkPtr work = all_reduce_async(at::ones({2}), group);
    EXPECT_FALSE(work->isCompleted());
    go_to(client, Phase::kFinish);
    work->wait();
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_EQ(first_of(evidence, 0, EventKind::kBlocked), nullptr);
}

TEST(Referee, FindsWhatTouchesABufferInFlight) {
  const std::vector<std::function<void(const at::Tensor&)>> touches = {
      [](const at::Tensor& tensor) { tensor.div_(2); },
      [](const at::Tensor& tensor) { static_cast<void>(tensor.norm()); },
      [](const at::Tensor& tensor) { tensor.data_ptr<float>()[1] = 5; }};
  for (const auto& touch : touches) {
    const Evidence evidence = run_as({}, [&](const auto& client, const auto& group) {
      const AccessWatch watch(*client);
      const at::Tensor tensor = at::ones({4});
      client->name({{"weight", tensor}});
      const WorkPtr work = all_reduce_async(tensor, group);
      touch(tensor);
      work->wait();
    });
    const Seen* found = first_of(evidence, 1, EventKind::kTouch);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->text, "weight");
  }
}

TEST(Referee, InASlowWorldAShortWaitFails) {
  const Evidence evidence = run_as({.slow = true}, [](const auto& client, const auto& group) {
    const WorkPtr work = all_reduce_async(at::ones({2}), group);
    EXPECT_FALSE(work->isCompleted());
    EXPECT_THROW(work->wait(std::chrono::milliseconds(200)), c10::Error);
    work->wait();
  });
  EXPECT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
}

}  // namespace

}  // namespace ddp
