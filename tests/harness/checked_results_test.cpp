// Everything passes through all decorators unchanged: results, futures, polls, messages.
#include <torch/csrc/autograd/autograd.h>

#include "group_checks.h"
#include "support/graded_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

using Tensors = std::vector<at::Tensor>;

void for_worlds(const std::function<void(Rank&)>& body) {
  for (const int world_size : {1, 2, 3, 4}) {
    testing::expect_graded_ranks_pass(world_size, [&](Rank& rank) {
      body(rank);
      EXPECT_EQ(rank.checked()->races(), std::vector<std::string>{});
      EXPECT_EQ(rank.checked()->pending(), std::vector<std::string>{});
    });
  }
}

at::Tensor filled(double value, at::IntArrayRef shape = {3}) {
  return at::full(shape, value, at::kDouble);
}

void expect_all(const at::Tensor& tensor, double value, const std::string& what) {
  EXPECT_TRUE(tensor.eq(value).all().item<bool>()) << what << ": " << tensor << ", not " << value;
}

double sum_of_ranks(const Rank& rank) {  // counted from 1
  return rank.world_size() * (rank.world_size() + 1) / 2.0;
}

TEST(CheckedResults, HelpersAndLayouts) {
  for_worlds([](Rank& rank) { testing::check_collectives(rank.group(), at::kCPU); });
}

TEST(CheckedResults, AllDtypes) {
  for_worlds([](Rank& rank) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kHalf, at::kBFloat16}) {
      const at::Tensor tensor = filled(rank.rank() + 1).to(dtype);
      all_reduce(tensor, rank.group());
      expect_all(tensor, sum_of_ranks(rank), c10::toString(dtype));
      broadcast(tensor, rank.group(), rank.world_size() - 1);
    }
    const at::Tensor empty = at::empty({0});
    all_reduce(empty, rank.group());
  });
}

TEST(CheckedResults, ReduceGatherScatter) {
  for_worlds([](Rank& rank) {
    const int root = rank.world_size() - 1;
    const bool is_root = rank.rank() == root;
    c10d::ReduceOptions reduce;
    reduce.rootRank = root;
    Tensors reduced{filled(rank.rank() + 1)};
    rank.group()->reduce(reduced, reduce)->wait();
    if (is_root) {
      expect_all(reduced[0], sum_of_ranks(rank), "reduce");
    }

    Tensors own{filled(rank.rank())};
    std::vector<Tensors> all;
    if (is_root) {
      all.emplace_back();
      for (int i = 0; i < rank.world_size(); ++i) {
        all[0].push_back(filled(-1));
      }
    }
    c10d::GatherOptions gather;
    gather.rootRank = root;
    rank.group()->gather(all, own, gather)->wait();
    for (int i = 0; is_root && i < rank.world_size(); ++i) {
      expect_all(all[0][i], i, "gather");
      all[0][i].mul_(10);
    }
    c10d::ScatterOptions scatter;
    scatter.rootRank = root;
    rank.group()->scatter(own, all, scatter)->wait();
    expect_all(own[0], 10 * rank.rank(), "scatter");
  });
}

TEST(CheckedResults, AllGatherReduceScatterAllToAll) {
  for_worlds([](Rank& rank) {
    const int world = rank.world_size();
    Tensors own{filled(rank.rank())};
    std::vector<Tensors> gathered(1);
    for (int i = 0; i < world; ++i) {
      gathered[0].push_back(filled(-1));
    }
    rank.group()->allgather(gathered, own)->wait();
    at::Tensor exchanged = filled(-1, {2 * world});
    at::Tensor numbered = at::arange(2 * world, at::kDouble) + 100 * rank.rank();
    std::vector<std::int64_t> equal;
    rank.group()->alltoall_base(exchanged, numbered, equal, equal)->wait();
    at::Tensor chunk = filled(-1, {2});
    rank.group()->_reduce_scatter_base(chunk, numbered)->wait();
    for (int i = 0; i < world; ++i) {
      expect_all(gathered[0][i], i, "all-gather");
      EXPECT_EQ(exchanged[2 * i].item<double>(), 100 * i + 2 * rank.rank());
    }
    EXPECT_EQ(chunk[0].item<double>(),
              100 * (sum_of_ranks(rank) - world) + 2 * world * rank.rank());
  });
}

// As in sharded training: every rank's part is already in the result tensor.
TEST(CheckedResults, AllGatherInPlaceIsNoRace) {
  for_worlds([](Rank& rank) {
    at::Tensor result = filled(-1, {2 * rank.world_size()});
    at::Tensor part = result.narrow(0, 2 * rank.rank(), 2).fill_(rank.rank());
    rank.group()->_allgather_base(result, part)->wait();
    for (int i = 0; i < rank.world_size(); ++i) {
      EXPECT_EQ(result[2 * i].item<double>(), i);
    }
  });
}

TEST(CheckedResults, PollingDelivers) {
  for_worlds([](Rank& rank) {
    const at::Tensor tensor = filled(rank.rank() + 1);
    const WorkPtr work = all_reduce_async(tensor, rank.group());
    while (!work->isCompleted()) {
    }
    EXPECT_TRUE(work->isSuccess());
    expect_all(tensor, sum_of_ranks(rank), "polled");
    work->wait();
    expect_all(tensor, sum_of_ranks(rank), "polled, then waited for");
  });
}

TEST(CheckedResults, FutureDeliversWheneverItIsAskedFor) {
  for_worlds([](Rank& rank) {
    const at::Tensor before = filled(rank.rank() + 1);
    all_reduce_async(before, rank.group())->getFuture()->wait();
    expect_all(before, sum_of_ranks(rank), "asked at once");

    const at::Tensor after = filled(rank.rank() + 1);
    const WorkPtr work = all_reduce_async(after, rank.group());
    work->wait();
    EXPECT_TRUE(work->getFuture()->completed()) << "asked after the wait";
    work->getFuture()->wait();

    // A callback, as in c10d::Reducer's communication hooks.
    bool called = false;
    const at::Tensor hooked = filled(rank.rank() + 1);
    const auto future = all_reduce_async(hooked, rank.group())->getFuture();
    future
        ->then(
            [&](c10::ivalue::Future& done) {
              called = !done.hasError();
              return done.value();
            },
            c10::ListType::create(c10::TensorType::get()))
        ->wait();
    EXPECT_TRUE(called);
    expect_all(hooked, sum_of_ranks(rank), "by callback");
  });
}

TEST(CheckedResults, MessagesWithTagsOutOfOrder) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const int peer = 1 - rank.rank();
    std::vector<WorkPtr> sends;
    for (const int tag : {0, 1, 2}) {
      sends.push_back(send_async(filled(10 * rank.rank() + tag), peer, rank.group(), tag));
    }
    const at::Tensor received = filled(-1);
    for (const int tag : {2, 0, 1}) {
      recv(received, peer, rank.group(), tag);
      expect_all(received, 10 * peer + tag, "message");
    }
    for (const WorkPtr& send : sends) {
      send->wait();
    }
  });
}

// The receiver posts both recvs before the sender, whose sends block, has sent to the one posted
// first.
TEST(CheckedResults, BlockingSendsMeetRecvsPostedInAnotherOrder) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor first = filled(1);
    const at::Tensor second = filled(2);
    if (rank.rank() == 0) {
      send(first, 1, rank.group(), 0);
      send(second, 1, rank.group(), 1);
      return;
    }
    const WorkPtr later = recv_async(first, 0, rank.group(), 1);
    const WorkPtr sooner = recv_async(second, 0, rank.group(), 0);
    sooner->wait();
    later->wait();
    expect_all(first, 2, "sent second");
    expect_all(second, 1, "sent first");
  });
}

TEST(CheckedResults, SendIsNotCompleteBeforeItsRecv) {
  testing::expect_graded_ranks_pass(2, [](Rank& rank) {
    const at::Tensor tensor = filled(rank.rank());
    if (rank.rank() == 0) {
      const WorkPtr work = send_async(tensor, 1, rank.group());
      barrier(rank.group());
      EXPECT_FALSE(work->isCompleted());
      EXPECT_EQ(rank.checked()->pending().size(), 1U);
      barrier(rank.group());
      work->wait();
    } else {
      barrier(rank.group());
      barrier(rank.group());
      recv(tensor, 0, rank.group());
      expect_all(tensor, 0, "received");
    }
  });
}

TEST(CheckedResults, TensorsThatNeedGradientsAreWelcome) {
  for_worlds([](Rank& rank) {
    const at::Tensor parameter = filled(rank.rank() + 1).set_requires_grad(true);
    broadcast(parameter, rank.group());
    EXPECT_TRUE(parameter.is_leaf());
    torch::autograd::backward({parameter.square().sum()}, {});
    all_reduce(parameter.grad(), rank.group());
    expect_all(parameter.grad(), 2 * rank.world_size(), "gradient");
  });
}

TEST(CheckedResults, OverlappingTensorsAreRefused) {
  testing::expect_graded_ranks_pass(1, [](Rank& rank) {
    EXPECT_THROW(all_reduce(at::ones({1}).expand({4}), rank.group()), c10::Error);
  });
}

}  // namespace
}  // namespace ddp
