#pragma once

#include <cstdint>
#include <vector>

#include "support/ranks.h"

namespace ddp::testing {

/// What a rank did, by its own recorder's positions.
struct RankHistory {
  struct Message {
    bool sent = false;  // else received
    int peer = -1;
    int tag = 0;
    /// Of the launch of a send. Of the wait for a recv, or of its launch where it was waited for in
    /// a way that nobody saw.
    std::int64_t position = -1;
  };
  std::vector<Message> messages;  // in the order of their launches
  std::int64_t began = -1;        // position of its first write; -1: it wrote nothing
  std::int64_t flushed = -1;      // position of the flush that followed its last write
};

/// Every rank's history, by rank. A collective call; what else `operations` holds than messages is
/// left out.
std::vector<RankHistory> gather_histories(Rank& rank,
                                          const std::vector<RecordedOperation>& operations,
                                          const RankHistory& mine);

/// True if messages let rank `later` begin to write only after rank `earlier` has flushed: a
/// message that was sent after the flush, or one that was sent after such a one had come, must have
/// come to `later` before. Whatever the timing was in this run.
bool is_ordered(const std::vector<RankHistory>& histories, int earlier, int later);

}  // namespace ddp::testing
