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
/// different tags) do not wait for each other: either order could make a legal program hang. For the
/// same reason a message may overtake: see overtake().
class MessageTimes {
 public:
  MessageTimes(const Evidence& evidence, const NetworkModel& network);

  /// `rank` launches one end of a message. Messages with the same ends and tag are matched in order.
  MessageTime& launch(int rank, const Seen& launch, std::int64_t now_ns);

  /// Computes all times that follow from the launches so far; returns the messages whose times are
  /// new.
  std::vector<const MessageTime*> settle();

  /// To be called when nothing else can go on: the message that can begin first passes those that
  /// its ports were given before, whose other ends are not launched or are busy. A rank may send to
  /// A and then to B, although A receives only once it has heard from B. Returns what settle() does.
  std::vector<const MessageTime*> overtake();

 private:
  // Messages with the same group, sender, receiver and tag, in order.
  struct Channel {
    std::vector<MessageTime*> messages;
    std::array<std::size_t, 2> launched = {};
  };

  bool settle(MessageTime& message) const;
  std::int64_t earliest_begin(const MessageTime& message) const;
  void move_up(MessageTime& message, int side);
  const MessageTime* before(const MessageTime& message, int side) const;

  const World& world_;
  const NetworkModel network_;
  std::deque<MessageTime> messages_;
  std::map<std::tuple<GroupIndex, int, int, int>, Channel> channels_;
  std::vector<std::array<std::vector<MessageTime*>, 2>> ports_;  // by rank: out, in
  std::vector<MessageTime*> pending_;                            // both ends are launched
};

}  // namespace ddp
