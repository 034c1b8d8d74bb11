#include "message_order.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace ddp::testing {

namespace {

constexpr std::int64_t kColumns = 4;
using Message = RankHistory::Message;

// The n-th message of one kind and tag between two ranks is the n-th of the other kind at the other
// end.
const Message* sent_for(const std::vector<RankHistory>& histories, int receiver,
                        std::size_t received) {
  const auto& mine = histories[receiver].messages;
  const Message& message = mine[received];
  const auto like = [](bool sent, int peer, int tag) {
    return [=](const Message& m) { return m.sent == sent && m.peer == peer && m.tag == tag; };
  };
  auto before = std::count_if(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(received),
                              like(false, message.peer, message.tag));
  const auto is_candidate = like(true, receiver, message.tag);
  for (const Message& candidate : histories[message.peer].messages) {
    if (is_candidate(candidate) && before-- == 0) {
      return &candidate;
    }
  }
  return nullptr;
}

// The messages in one rank's part of the gathered rows.
std::vector<Message> messages_of(const at::Tensor& rows) {
  std::vector<Message> messages;
  for (std::int64_t i = 0; i < rows.size(0) && rows[i][1].item<std::int64_t>() >= 0; ++i) {
    messages.push_back({.sent = rows[i][0].item<std::int64_t>() != 0,
                        .peer = rows[i][1].item<int>(),
                        .tag = rows[i][2].item<int>(),
                        .position = rows[i][3].item<std::int64_t>()});
  }
  return messages;
}

}  // namespace

std::vector<RankHistory> gather_histories(Rank& rank,
                                          const std::vector<RecordedOperation>& operations,
                                          const RankHistory& mine) {
  const auto count = static_cast<std::int64_t>(operations.size());
  const at::Tensor head = at::tensor({count, mine.began, mine.flushed}, at::kLong);
  const at::Tensor heads = all_gather(head.to(settings().device), rank.group()).cpu();
  const std::int64_t most = heads.select(1, 0).max().item<std::int64_t>();
  at::Tensor rows = at::full({most, kColumns}, -1, at::kLong);
  std::int64_t next = 0;
  for (const RecordedOperation& operation : operations) {
    if (operation.is_message()) {
      const bool sent = operation.type == c10d::OpType::SEND;
      const std::int64_t position =
          sent || operation.waited < 0 ? operation.launched : operation.waited;
      rows[next++].copy_(at::tensor(
          {std::int64_t{sent}, std::int64_t{operation.peer}, std::int64_t{operation.tag}, position},
          at::kLong));
    }
  }
  const at::Tensor all = all_gather(rows.to(settings().device), rank.group()).cpu();
  std::vector<RankHistory> histories;
  histories.reserve(rank.world_size());
  for (int other = 0; other < rank.world_size(); ++other) {
    histories.push_back({.messages = messages_of(all[other]),
                         .began = heads[other][1].item<std::int64_t>(),
                         .flushed = heads[other][2].item<std::int64_t>()});
  }
  return histories;
}

bool is_ordered(const std::vector<RankHistory>& histories, int earlier, int later) {
  // For each rank: the position up to which everything has happened when `later` begins.
  std::vector<std::int64_t> happened(histories.size(), -1);
  happened[later] = histories[later].began;
  for (bool changed = true; changed;) {
    changed = false;
    for (int rank = 0; rank < static_cast<int>(histories.size()); ++rank) {
      const auto& messages = histories[rank].messages;
      for (std::size_t i = 0; i < messages.size(); ++i) {
        if (messages[i].sent || messages[i].position >= happened[rank]) {
          continue;
        }
        const Message* sent = sent_for(histories, rank, i);
        if (sent != nullptr && sent->position > happened[messages[i].peer]) {
          happened[messages[i].peer] = sent->position;
          changed = true;
        }
      }
    }
  }
  return histories[earlier].flushed >= 0 && histories[earlier].flushed < happened[earlier];
}

}  // namespace ddp::testing
