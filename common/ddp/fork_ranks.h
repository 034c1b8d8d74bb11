#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/shared_exchange.h"

namespace c10d {
class Store;
}

namespace ddp {

/// What a rank's body is given.
struct RankContext {
  int rank = 0;
  int world_size = 1;
  /// Where the ranks find each other; every process group is made from it.
  c10::intrusive_ptr<c10d::Store> store;
  /// The forked ranks' shared memory; null under torchrun, mpirun and srun.
  Blackboard* board = nullptr;
  /// Their other shared memory, for payloads; null likewise.
  SharedExchange* exchange = nullptr;
  /// Sends a message to the parent, which finds it in RankReport::messages; does nothing without a
  /// parent.
  std::function<void(const std::string&)> send_to_parent = [](const std::string&) {};
};

using RankBody = std::function<void(RankContext&)>;

struct ForkOptions {
  int world_size = 2;
  /// A rank that has not ended by then is stopped, and says where it was.
  std::chrono::milliseconds deadline{10'000};
  /// Intra-op threads of each rank.
  int threads_per_rank = 1;
  /// Passes the ranks' output through instead of collecting it.
  bool show_output = false;
};

/// How a rank ended.
enum class RankOutcome {
  kFinished,   // its body returned
  kThrew,      // its body threw
  kSignalled,  // it died by a signal
  kExited,     // something called exit() before the body had returned
  kTimedOut,   // it was stopped at the deadline
  kStopped,    // it was stopped, or gave up, because another rank had failed
};

struct RankReport {
  int rank = 0;
  RankOutcome outcome = RankOutcome::kFinished;
  /// Why, in one line: the exception's text, the signal's name, the exit code.
  std::string reason;
  /// True if the exception was a c10::NotImplementedError: a stub.
  bool not_implemented = false;
  /// The last thing it said it was doing, such as "waits for all-reduce #3 of fc1.weight.grad (400
  /// bytes)".
  std::string activity;
  /// The innermost places in the lab's code where it crashed or hung: "naive_ddp.cpp:42 in
  /// make_naive_ddp".
  std::vector<std::string> stack;
  /// What it printed: the beginning and the end, at most 16 KiB.
  std::string log;
  std::vector<std::string> messages;
};

struct RankReports {
  std::vector<RankReport> ranks;
  /// The rank that failed first; -1 if all finished.
  int culprit = -1;

  bool ok() const { return culprit < 0; }
  /// Why it failed, for a person: the culprit first, then where every other rank was. Empty when
  /// ok.
  std::string describe() const;
};

/// Runs `body` in `options.world_size` forked processes, a rank each, and returns when all of them
/// have ended, by themselves or by force at the deadline. Nothing of theirs is left: no process, no
/// file, no port.
///
/// The calling process must be single-threaded, so that a fork is a faithful copy; it may have
/// loaded libtorch but not used it. Each rank has its own log, dies with its parent, and may not
/// write core files. Throws c10::Error if the caller has threads, or no process can be made.
RankReports fork_ranks(const ForkOptions& options, const RankBody& body);

}  // namespace ddp
