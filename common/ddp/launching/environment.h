#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// What a launcher passes to each process that it starts.
struct LaunchEnvironment {
  int rank = 0;
  int world_size = 1;
  /// This rank's index among those of its machine, and of its GPU.
  int local_rank = 0;
  /// Where rank 0, or the launcher, serves the store by which the ranks find each other.
  std::string master_addr;
  int master_port = 0;
  /// True under torchrun, whose agent serves that store; otherwise rank 0 does.
  bool store_is_served = false;
};

/// Looks a variable up, like std::getenv: null if it is not set.
using GetVariable = std::function<const char*(const char*)>;

/// Reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and LOCAL_RANK, as torchrun sets them; other
/// launchers have to be told to (docs/several_machines.md). Empty variables count as not set, and a
/// missing LOCAL_RANK is the rank.
///
/// Returns none if neither RANK nor WORLD_SIZE is set. Throws a c10::ValueError that names the
/// variable if one is missing or invalid.
std::optional<LaunchEnvironment> read_launch_environment(
    const GetVariable& get_variable = [](const char* name) { return std::getenv(name); });

/// How long a rank waits for others that a launcher has started, on machines that may be gone:
/// `usual`, or DDP_LAB_TIMEOUT_S seconds if that is less. Throws a c10::ValueError if it is no number.
std::chrono::milliseconds longest_wait(
    std::chrono::milliseconds usual,
    const GetVariable& get_variable = [](const char* name) { return std::getenv(name); });

/// The name of this machine, for messages.
std::string host_name();

}  // namespace ddp
