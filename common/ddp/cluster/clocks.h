#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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
    std::int64_t launch_ns = 0;  // of the host, for everything that it launches
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

  /// A collective that may begin at `ready`: it does when the one before it has ended. Its end is
  /// that with no computing beside it from here on; a wait for that end is for the true one.
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

}  // namespace ddp::cluster
