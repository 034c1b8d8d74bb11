#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "ddp/network_model.h"
#include "ddp/referee/evidence.h"

namespace ddp {

/// A message in virtual time.
struct MessageTime {
  struct End {
    int rank = -1;
    const Seen* launch = nullptr;  // null: not launched yet
    std::int64_t launched_ns = 0;
    std::size_t turn = 0;  // among the messages of its port
  };
  std::array<End, 2> ends;  // the sender's and the receiver's
  /// What else must have ended before it begins.
  std::vector<const MessageTime*> after;
  std::int64_t begin_ns = -1;  // unknown, like the end
  std::int64_t end_ns = -1;
};

/// When messages begin and end. Each rank has one outgoing and one incoming port, which work at the
/// same time. A message begins when both its ends are launched and both its ports have done the
/// messages that they were given before; it lasts cost_ns().
///
/// Two messages between the same ranks which the two ends have launched in opposite orders (with
/// different tags) do not wait for each other: either order could make a legal program hang.
class MessageTimes {
 public:
  MessageTimes(const Evidence& evidence, const NetworkModel& network);

  /// `rank` launches one end of a message. Messages with the same ends and tag are matched in order.
  MessageTime& launch(int rank, const Seen& launch, std::int64_t now_ns);

  /// Computes all times that follow from the launches so far; returns the messages whose times are
  /// new. Those that wait for each other in a circle never have one.
  std::vector<const MessageTime*> settle();

 private:
  // Messages with the same group, sender, receiver and tag, in order.
  struct Channel {
    std::vector<MessageTime*> messages;
    std::array<std::size_t, 2> launched = {};
  };

  bool settle(MessageTime& message) const;
  const MessageTime* before(const MessageTime& message, int side) const;

  const World& world_;
  const NetworkModel network_;
  std::deque<MessageTime> messages_;
  std::map<std::tuple<GroupIndex, int, int, int>, Channel> channels_;
  std::vector<std::array<std::vector<MessageTime*>, 2>> ports_;  // by rank: out, in
  std::vector<MessageTime*> pending_;                            // both ends are launched
};

}  // namespace ddp
