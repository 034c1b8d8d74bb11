#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>

#include "ddp/ranks/shared_exchange.h"

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

}  // namespace ddp
