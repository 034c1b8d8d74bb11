#pragma once

#include <cstdint>
#include <vector>

#include "support/ranks.h"

namespace ddp::testing {

/// What a rank did, in positions of its own recorder.
struct RankHistory {
  struct Message {
    bool sent = false;  // else received
    int peer = -1;
    int tag = 0;
    /// Of the launch of a send. Of the wait for a recv, or of its launch if the wait was not seen.
    std::int64_t position = -1;
  };
  std::vector<Message> messages;  // in the order of their launches
  std::int64_t began = -1;        // position of its first write; -1: it wrote nothing
  std::int64_t flushed = -1;      // position of the flush that followed its last write
};

/// Every rank's history, by rank. A collective call; ignores all `operations` except messages.
std::vector<RankHistory> gather_histories(Rank& rank,
                                          const std::vector<RecordedOperation>& operations,
                                          const RankHistory& mine);

/// True if messages let rank `later` begin to write only after rank `earlier` has flushed, whatever
/// the timing of this run: `later` must first have received a message sent after the flush, or one
/// sent after receiving such a message.
bool is_ordered(const std::vector<RankHistory>& histories, int earlier, int later);

}  // namespace ddp::testing
