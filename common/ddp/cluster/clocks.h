#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace ddp::cluster {

/// From `begin` to `end`, in nanoseconds since the beginning of a step.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What launching an operator costs the host: how many kernels, and how long that takes, where it is
/// more than launch_ns.
struct HostWork {
  std::int64_t ns = 0, kernels = 1;
};

/// The three clocks of a rank, as of a GPU with two streams: when its host will be done with what it
/// has been told to do, and when its compute stream and its communication stream will.
class Clocks {
 public:
  struct Costs {
    std::int64_t launch_ns = 0;             // of the host, for everything that it launches
    std::int64_t collective_launch_ns = 0;  // of a host that computes, too; see ClusterOptions
    bool wait_blocks_host = false;
    double slowdown_beside_communication = 1;
    std::int64_t kernel_ns_beside_communication = 0;  // of each kernel, besides
    double slowdown_beside_computing = 1;             // of a collective
    std::int64_t launch_queue = 0;  // kernels that may wait for the device; 0: any number
  };

  explicit Clocks(const Costs& costs) : costs_(costs) {}

  /// All clocks back to zero, at which nothing is running.
  void reset();

  /// The host launches an operator that takes the compute stream `ns` alone, and longer by
  /// slowdown_beside_communication, and kernel_ns_beside_communication for each of its kernels, while
  /// a collective runs. The launch takes the host `host_ns`, if
  /// that is more than launch_ns: an operator may be several kernels, called from a slow language. The
  /// host waits while more of them are in the queue than it holds.
  Interval compute(std::int64_t ns, const HostWork& host = {});

  /// The host launches communication; returns when that may begin: once the host has got there, and
  /// the compute stream is done with what was launched on it before.
  std::int64_t launch();

  /// A collective that may begin at `ready`: it does when the one before it has ended. The end
  /// returned assumes no computing beside it from here on; a wait uses the corrected one.
  Interval communicate(std::int64_t ready, std::int64_t ns);

  /// What is launched from here on needs the end of something: the compute stream waits for it, or
  /// the host does.
  void wait_until(std::int64_t end);

  /// The host itself waits for the end of something.
  void poll_until(std::int64_t end);

  /// When all that was launched on the compute stream is done, and the host too.
  std::int64_t now() const { return host_ > compute_ ? host_ : compute_; }
  std::int64_t host() const { return host_; }
  /// The end of the last collective.
  std::int64_t communication() const { return collectives_.empty() ? 0 : collectives_.back().end; }
  /// For how long waits have held up a stream or host that had nothing else to do.
  std::int64_t waited() const { return waited_; }

 private:
  // `expected` is its end as it was when it was launched.
  struct Collective {
    std::int64_t ready, ns, expected, begin, end;
  };

  std::int64_t end_of_computing(std::int64_t begin, std::int64_t ns, std::int64_t kernels);
  void delay(std::size_t collective, std::int64_t end);
  std::int64_t true_end(std::int64_t expected) const;

  Costs costs_;
  std::int64_t host_ = 0;
  std::int64_t compute_ = 0;
  std::int64_t waited_ = 0;
  struct Queued {
    std::int64_t kernels, end;
  };
  std::deque<Queued> queue_;
  std::int64_t queued_ = 0;              // kernels
  std::vector<Collective> collectives_;  // in their order; no two at a time
  std::size_t first_running_ = 0;  // those before have ended when the compute stream gets there
};

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
    /// Without a symmetric partner, assumes that the other end is launched when this one is, as in
    /// trees.
    bool others_in_step = false;
  };

  explicit Messages(Options options) : options_(std::move(options)) {}

  /// Forgets all messages, as at the beginning of a step.
  void reset();

  /// This rank launches its end of a message: `end` without times. Messages between the same ranks
  /// with the same tag are matched in order.
  MessageEndPtr launch(MessageEnd end);

  /// Gives the message its times, now that this rank waits for it. Throws c10::Error if the other end
  /// can no longer be launched.
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
