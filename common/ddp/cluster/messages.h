#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace ddp::cluster {

/// This rank's end of a message: it sends to the peer, or receives from it.
struct MessageEnd {
  bool sends = false;
  int peer = -1;
  int tag = 0;
  std::int64_t bytes = 0;
  std::int64_t launched_ns = 0;
  /// Of the message; -1: not known yet.
  std::int64_t begin_ns = -1;
  std::int64_t end_ns = -1;
  /// The other end, which this rank has launched as the peer's deputy, until the times are known.
  std::shared_ptr<MessageEnd> other = nullptr;
};

using MessageEndPtr = std::shared_ptr<MessageEnd>;

/// The messages of one rank of a world whose other ranks do the same. So it needs no partner: what it
/// sends to the rank h places on, the rank h places back sends to it at the same time. Where there is
/// no such message, its partner sends it in return what it sends to the partner (as rank r XOR h
/// does).
///
/// Each rank has one outgoing and one incoming port, which work at the same time. A message begins
/// when both its ends are launched, and those are done that were sent before it.
class Messages {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    /// What a message of so many bytes takes.
    std::function<std::int64_t(std::int64_t bytes)> cost_ns;
    /// If neither symmetry has the other end of a message, that is launched when this one is: so it
    /// is in trees, where partners come to a message at the same time on different ways.
    bool others_in_step = false;
  };

  explicit Messages(Options options) : options_(std::move(options)) {}

  /// Forgets all messages, as at the beginning of a step.
  void reset();

  /// This rank launches its end of a message: `end` without times. Messages between the same ranks
  /// with the same tag are matched in order.
  MessageEndPtr launch(MessageEnd end);

  /// Gives the message its times, now that this rank waits for it: like the others, it launches
  /// nothing more before. Throws c10::Error if so nobody ever launches the other end.
  void await(const MessageEndPtr& end);

 private:
  // By how many places on the receiver is, and the tag: the ends that have no other yet.
  struct Unmatched {
    std::deque<MessageEndPtr> sends, receives;
  };
  using Channel = std::pair<int, int>;

  Unmatched& channel_of(const MessageEnd& end);
  void match(const MessageEndPtr& one, const MessageEndPtr& other);
  void match_exchange(const MessageEndPtr& end);
  void settle();
  void settle_alone(const MessageEndPtr& end);

  Options options_;
  std::map<Channel, Unmatched> channels_;
  std::deque<MessageEndPtr> port_;  // what was sent, until its times are known
  std::int64_t free_ns_ = 0;        // when the ports are done with all that have times
};

}  // namespace ddp::cluster
