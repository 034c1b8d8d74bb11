#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>

namespace c10d {
class Store;
}

namespace ddp {

/// The argument of a rank's body.
struct RankContext {
  int rank = 0;
  int world_size = 1;
  /// Where the ranks find each other; every process group is made from it.
  c10::intrusive_ptr<c10d::Store> store;
  /// False under torchrun, mpirun and srun.
  bool forked = false;
  /// Sends a message to the parent, which stores it in RankReport::messages; does nothing if there
  /// is no parent.
  std::function<void(const std::string&)> send_to_parent = [](const std::string&) {};
};

using RankBody = std::function<void(RankContext&)>;

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
};

}  // namespace ddp
