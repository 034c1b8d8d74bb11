// The shared memory through which ranks observe each other.
#include "ddp/ranks/blackboard.h"

#include <gtest/gtest.h>

#include "support/plain_ranks.h"

namespace ddp {
namespace {

OperationRecord record_of_bytes(std::int64_t bytes) {
  OperationRecord record;
  record.bytes = bytes;
  return record;
}

TEST(Blackboard, RecordsAreFoundByRankChannelAndIndex) {
  testing::expect_plain_ranks_pass({.world_size = 3}, [](RankContext& context) {
    Blackboard& board = *context.board;
    const int first = board.open_channel(context.rank);
    const int second = board.open_channel(context.rank);
    EXPECT_NE(first, second);
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(board.publish(first, context.rank, record_of_bytes(1'000 * context.rank + i)), i);
    }
    for (int rank = 0; rank < 3; ++rank) {
      for (const int i : {99, 0, 57}) {
        EXPECT_EQ(board.wait_for(first, rank, i).bytes, 1'000 * rank + i);
      }
      EXPECT_EQ(board.find(first, rank, 100), nullptr);
      EXPECT_EQ(board.find(second, rank, 0), nullptr);
    }
  });
}

TEST(Blackboard, WaitingForOneThatEndedIsGivenUp) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    Blackboard& board = *context.board;
    const int channel = board.open_channel(context.rank);
    if (context.rank == 0) {
      board.publish(channel, 0, record_of_bytes(1));
      return;
    }
    board.wait_until([&] { return board.phase(0) == RankPhase::kFinished; });
    EXPECT_EQ(board.wait_for(channel, 0, 0).bytes, 1) << "what it left is still there";
    EXPECT_THROW(board.wait_for(channel, 0, 1), PeerGone);
  });
}

TEST(Blackboard, ActivityIsCutAndNeverTorn) {
  Blackboard board(2);
  EXPECT_EQ(board.activity(1), "");
  board.set_activity(1, "works");
  EXPECT_EQ(board.activity(1), "works");
  EXPECT_EQ(board.activity(0), "");
  board.set_activity(1, std::string(10'000, 'x'));
  EXPECT_LT(board.activity(1).size(), 300U);
  board.set_activity(1, "short again");
  EXPECT_EQ(board.activity(1), "short again");
}

TEST(Blackboard, RunningOutOfRoomIsSaid) {
  Blackboard board(1);
  for (int i = 0; i < Blackboard::kMaxChannels; ++i) {
    EXPECT_EQ(board.open_channel(0), i);
  }
  EXPECT_THROW(board.open_channel(0), c10::Error);
  for (int i = 0; i < Blackboard::kMaxOperations; ++i) {
    board.publish(0, 0, {});
  }
  EXPECT_THROW(board.publish(0, 0, {}), c10::Error);
}

}  // namespace
}  // namespace ddp
