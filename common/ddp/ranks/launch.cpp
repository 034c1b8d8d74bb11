#include "ddp/ranks/launch.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "ddp/ranks/environment.h"

namespace ddp {

namespace {

constexpr auto kMeetingTime = std::chrono::minutes(2);
constexpr auto kPartingTime = std::chrono::seconds(10);

std::string machine_key(int rank) { return "ddp_lab/machine/" + std::to_string(rank); }
std::string ended_key(int rank) { return "ddp_lab/ended/" + std::to_string(rank); }

std::vector<std::string> keys_of_all(int world_size, std::string (*key)(int)) {
  std::vector<std::string> keys(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    keys[rank] = key(rank);
  }
  return keys;
}

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string get_text(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// Equal for two processes if and only if they can reach each other by the loopback address: they
// run on the same booted system, in the same network namespace (a container may have its own).
std::string machine_identity() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", ignored);
  return std::string(host.data()) + " " + boot + " " + network.string();
}

StorePtr connect(const LaunchEnvironment& environment) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.master_port);
  options.isServer = environment.rank == 0 && !environment.store_is_served;
  options.waitWorkers = false;  // meet() waits, and can name the missing ranks
  options.timeout = kMeetingTime;
  try {
    return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, options.isServer ? "cannot keep the ranks' store at " : "cannot reach ",
                environment.master_addr, ":", environment.master_port,
                " (MASTER_ADDR, MASTER_PORT): ", error.what_without_backtrace());
  }
}

// Returns when all ranks have arrived and published their machine identities.
void meet(c10d::Store& store, const LaunchEnvironment& environment) {
  set_text(store, machine_key(environment.rank), machine_identity());
  const auto keys = keys_of_all(environment.world_size, machine_key);
  try {
    store.wait(keys, kMeetingTime);
  } catch (const c10::Error&) {
    std::string missing;
    for (int rank = 0; rank < environment.world_size; ++rank) {
      if (!store.check({keys[rank]})) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    TORCH_CHECK(false, "of ", environment.world_size,
                " ranks these did not arrive within 2 minutes at ", environment.master_addr, ":",
                environment.master_port, ": ", missing);
  }
}

// Rank 0 serves the store, so it leaves last; but it does not wait long for ranks that may have
// died.
void part(c10d::Store& store, const LaunchEnvironment& environment) {
  set_text(store, ended_key(environment.rank), "");
  if (environment.rank > 0 || environment.store_is_served) {
    return;
  }
  const auto keys = keys_of_all(environment.world_size, ended_key);
  try {
    store.wait(keys, kPartingTime);
  } catch (const c10::Error&) {
    // A rank that still runs no longer needs the store, or has failed and reported it.
  }
}

void run_rank(const LaunchEnvironment& environment, const RankBody& body) {
  RankContext context;
  context.rank = environment.rank;
  context.world_size = environment.world_size;
  context.store = connect(environment);
  meet(*context.store, environment);
  body(context);
  part(*context.store, environment);
}

int report_failure(const LaunchEnvironment& environment, const char* what) {
  std::fprintf(stderr, "rank %d of %d failed: %s\n", environment.rank, environment.world_size,
               what);
  return 1;
}

int run_launched(const LaunchEnvironment& environment, const LaunchOptions& options,
                 const RankBody& body) {
  try {
    at::set_num_threads(options.threads_per_rank);
    run_rank(environment, body);
    return 0;
  } catch (const c10::Error& error) {
    return report_failure(environment, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return report_failure(environment, error.what());
  }
}

int run_forked(const LaunchOptions& options, const RankBody& body) {
  const RankReports reports = fork_ranks({.world_size = options.world_size,
                                          .deadline = options.deadline,
                                          .threads_per_rank = options.threads_per_rank,
                                          .show_output = true},
                                         body);
  if (!reports.ok()) {
    std::fprintf(stderr, "%s\n", reports.describe().c_str());
  }
  return reports.ok() ? 0 : 1;
}

}  // namespace

int launch(const LaunchOptions& options, const RankBody& body) {
  try {
    const auto environment = read_launch_environment();
    return environment ? run_launched(*environment, options, body) : run_forked(options, body);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
}

Placement placement_of(const RankContext& context) {
  Placement placement;
  if (context.forked) {
    placement.local_rank = context.rank;
    return placement;
  }
  const std::string mine = get_text(*context.store, machine_key(context.rank));
  for (int rank = 0; rank < context.world_size; ++rank) {
    const bool neighbour = get_text(*context.store, machine_key(rank)) == mine;
    placement.one_machine &= neighbour;
    placement.local_rank += neighbour && rank < context.rank ? 1 : 0;
  }
  return placement;
}

StorePtr store_for_next_backend(const RankContext& context) {
  static std::atomic<int> count = 0;
  return c10::make_intrusive<c10d::PrefixStore>("ddp_lab/backend/" + std::to_string(count++),
                                                context.store);
}

BackendPtr make_gloo_backend(const RankContext& context, std::chrono::milliseconds timeout) {
  const Reach reach = placement_of(context).one_machine ? Reach::kThisMachine : Reach::kNetwork;
  return make_gloo_backend(store_for_next_backend(context), context.rank, context.world_size,
                           timeout, reach);
}

ProcessGroupPtr make_gloo_group(const RankContext& context, std::chrono::milliseconds timeout) {
  return make_process_group(make_gloo_backend(context, timeout), context.store);
}

}  // namespace ddp
