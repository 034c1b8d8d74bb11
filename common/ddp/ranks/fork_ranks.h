#pragma once

#include <c10/util/intrusive_ptr.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace ddp {

/// The argument of a rank's function.
struct RankContext {
  int rank = 0;
  int world_size = 1;
  /// Where the ranks find each other; every process group is made from it. Undefined beside a companion.
  c10::intrusive_ptr<c10d::Store> store;
  /// Beside a companion: what is written to this descriptor, an eventfd that no other rank has, wakes it up.
  int bell = -1;
  /// False under a launcher.
  bool forked = false;
  /// Sends a message to the parent, which stores it in RankReport::messages; does nothing if there
  /// is no parent.
  std::function<void(const std::string&)> send_to_parent = [](const std::string&) {};
};

using RankFunction = std::function<void(RankContext&)>;

/// As a deadline: there is none, and no rank is ended because another has failed. For debuggers.
constexpr std::chrono::milliseconds kNoDeadline = std::chrono::hours(24 * 365);

struct ForkOptions {
  int world_size = 2;
  /// A rank that still runs at the deadline is stopped, and says where it was.
  std::chrono::milliseconds deadline{10'000};
  /// Intra-op threads of each rank.
  int threads_per_rank = 1;
  /// Whether the ranks' output is passed through instead of collected.
  bool show_output = false;
  /// The library that ranks load, whose code's places reports name, beside those of what this process has
  /// loaded itself.
  std::string stage_library = {};
  /// Whether nobody trusts that library: then no other file is searched for places.
  bool untrusted = false;
  /// Whether what the ranks' code says must stay in the dark, as it may have read what is secret: what it
  /// prints, and the texts of its exceptions.
  bool withhold = false;
};

/// How a rank ended.
enum class RankOutcome {
  kFinished,   // its function returned
  kThrew,      // its function threw
  kSignalled,  // a signal killed it
  kExited,     // something called exit() before the rank's function had returned
  kTimedOut,   // it was stopped at the deadline
  kStopped,    // it was stopped, or gave up, because another rank had failed
  kRefused,    // it was ended, as the companion would hear no more of it
};

struct RankReport {
  int rank = 0;
  RankOutcome outcome = RankOutcome::kFinished;
  /// The cause of the outcome: the exception's text, the signal's name, the exit code.
  std::string reason;
  /// True if the exception was a c10::NotImplementedError, as a stub throws.
  bool not_implemented = false;
  /// What it did last, where a companion knows: "waits for all-reduce #3 of the gradient of
  /// fc1.weight (400 bytes)".
  std::string activity;
  /// The innermost places in the lab's code where it crashed, threw or hung, see name_places().
  std::vector<std::string> stack;
  /// The beginning and the end of its output, at most 16 KiB.
  std::string log;
  std::vector<std::string> messages;

  /// "rank 0 printed:" and the first and last lines of `log`, indented; empty if it printed nothing.
  std::string printed() const;
};

struct RankReports {
  std::vector<RankReport> ranks;
  /// The rank that failed first; -1 if all finished.
  int culprit = -1;

  bool ok() const { return culprit < 0; }
  /// A report of the failure: the culprit first, then where every other rank was. Empty if ok().
  std::string describe() const;
};

/// A rank that will never end by itself, and why.
struct Hang {
  int rank = 0;
  std::string reason;
};

/// What runs beside forked ranks, in their parent, and knows what they do: the network of a
/// refereed world.
class Companion {
 public:
  Companion() = default;
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;
  virtual ~Companion() = default;

  /// Does what there is to do, for a few milliseconds. `processes` are those of the ranks; -1 for a
  /// rank that has ended. Returns how long it can sleep if no bell rings, see RankContext.
  virtual std::chrono::milliseconds attend(const std::vector<pid_t>& processes) = 0;

  /// The rank's process has ended; `finished` if its function had returned.
  virtual void rank_ended(int rank, bool finished) = 0;

  /// Set once no rank can go on.
  virtual std::optional<Hang> hang() const = 0;

  /// A rank of which it would hear no more, and why: once.
  virtual std::optional<Hang> refused() { return std::nullopt; }

  /// What the rank does, in a line: "waits for all-reduce #3 of the gradient of fc1.weight".
  virtual std::string activity(int rank) const = 0;
};

/// Runs `function` in `options.world_size` forked processes, one for each rank, and returns when all
/// have ended, by themselves or killed at the deadline. They leave nothing behind: no process, no
/// file, no port.
///
/// The calling process must be single-threaded, so that a fork is a faithful copy; it may have
/// loaded libtorch but not used it. Each rank has its own log, dies with its parent, and writes no
/// core files. A companion, if given, finds hangs instead of the deadline. Throws c10::Error
/// if the caller has several threads or a process cannot be started.
RankReports fork_ranks(const ForkOptions& options, const RankFunction& function,
                       Companion* companion = nullptr);

}  // namespace ddp
