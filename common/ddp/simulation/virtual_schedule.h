#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "ddp/network_model.h"
#include "ddp/ranks/blackboard.h"

namespace ddp {

/// When an operation uses the network, in virtual nanoseconds.
struct VirtualInterval {
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// When the operations of a group start and end, in virtual nanoseconds, computed from what the
/// ranks published at their launches. Every rank computes the same times from the same records,
/// whatever the real timing was.
///
/// Collectives share the network: number k starts when all ranks have launched it and number k-1
/// has ended. A message starts when both ends have launched it and both its ports (the sender's
/// outgoing, the receiver's incoming one) have finished their earlier messages. Messages and
/// collectives do not slow each other down.
class VirtualSchedule {
 public:
  VirtualSchedule(Blackboard& board, int collectives, int messages, const NetworkModel& network);

  /// The time of the group's collective `index`; waits until all ranks have launched it.
  VirtualInterval collective_time(std::int64_t index);

  /// The time of message `index` of `rank`'s list; waits until the other end has been launched.
  VirtualInterval message_time(int rank, std::int64_t index);

 private:
  struct Messages {                              // of one rank, as far as they have been looked at
    std::vector<std::int64_t> previous_on_port;  // -1: the first
    std::vector<std::int64_t> ordinal;           // among those of the same kind, peer and tag
    std::vector<VirtualInterval> time;           // end negative: not computed yet
    std::map<std::tuple<int, int, int>, std::vector<std::int64_t>> by_partner;  // kind, peer, tag
    std::map<int, std::int64_t> last_on_port;                                   // by kind
  };
  void read_message(int rank, std::int64_t index);
  std::int64_t partner_of(int rank, std::int64_t index);
  std::int64_t previous_on_port(int rank, std::int64_t index);

  Blackboard& board_;
  const int collectives_;
  const int messages_channel_;
  const NetworkModel network_;
  std::vector<VirtualInterval> collective_times_;
  std::vector<Messages> messages_;
};

}  // namespace ddp
