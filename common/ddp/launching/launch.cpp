#include "ddp/launching/launch.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ddp/launching/environment.h"
#include "ddp/launching/meeting.h"

namespace ddp {

namespace {

void run_rank(const LaunchEnvironment& environment, const RankFunction& function) {
  RankContext context;
  context.rank = environment.rank;
  context.world_size = environment.world_size;
  context.store = meet(environment);
  function(context);
  part(*context.store, environment);
}

// What Gloo says, or the store, of a partner that is gone, in words that say what to do.
std::string explain(const std::string& what) {
  const auto says = [&](const char* part) { return what.find(part) != std::string::npos; };
  if (says("Connection closed by peer") || says("Connection reset by peer") ||
      says("Broken pipe")) {
    return "its connection to another rank was closed, so that rank has ended: look at what it, or "
           "its launcher, printed last. " +
           what;
  }
  if (says("Timed out waiting")) {
    return "another rank did not answer in time: it still computes, hangs, or its machine or the "
           "network between is gone. " +
           what;
  }
  return what;
}

int report_failure(const LaunchEnvironment& environment, const char* what) {
  std::fprintf(stderr, "rank %d of %d on %s failed: %s\n", environment.rank, environment.world_size,
               host_name().c_str(), explain(what).c_str());
  return 1;
}

int run_launched(const LaunchEnvironment& environment, const LaunchOptions& options,
                 const RankFunction& function) {
  try {
    at::set_num_threads(options.threads_per_rank);
    run_rank(environment, function);
    return 0;
  } catch (const c10::Error& error) {
    return report_failure(environment, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return report_failure(environment, error.what());
  }
}

int run_forked(const LaunchOptions& options, const RankFunction& function) {
  const RankReports reports = fork_ranks({.world_size = options.world_size,
                                          .deadline = options.deadline,
                                          .threads_per_rank = options.threads_per_rank,
                                          .show_output = true},
                                         function);
  if (!reports.ok()) {
    std::fprintf(stderr, "%s\n", reports.describe().c_str());
  }
  return reports.ok() ? 0 : 1;
}

}  // namespace

int launch(const LaunchOptions& options, const RankFunction& function) {
  try {
    const auto environment = read_launch_environment();
    return environment ? run_launched(*environment, options, function)
                       : run_forked(options, function);
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
  const std::string mine = machine_of(*context.store, context.rank);
  for (int rank = 0; rank < context.world_size; ++rank) {
    const bool neighbour = machine_of(*context.store, rank) == mine;
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
  return make_gloo_backend_of_first(context.world_size, store_for_next_backend(context), context,
                                    timeout);
}

BackendPtr make_gloo_backend_of_first(int ranks, const StorePtr& store, const RankContext& context,
                                      std::chrono::milliseconds timeout) {
  timeout = longest_wait(timeout);
  if (placement_of(context).one_machine) {
    return make_gloo_backend(store, context.rank, ranks, timeout);
  }
  const std::string address = agree_on_address(context);
  std::string what;
  try {
    return make_gloo_backend(store, context.rank, ranks, timeout, address);
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {  // Gloo's own
    what = error.what();
  }
  C10_THROW_ERROR(Error, "it listens at " + address +
                             ", and cannot connect with all others. GLOO_SOCKET_IFNAME "
                             "chooses another network. " +
                             what);
}

ProcessGroupPtr make_gloo_group(const RankContext& context, std::chrono::milliseconds timeout) {
  return make_process_group(make_gloo_backend(context, timeout), context.store);
}

void keep_to_own_cores(int local_rank, int local_ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return;
  }
  const int share = CPU_COUNT(&allowed) / local_ranks;
  if (share == 0) {
    return;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  int nth = 0;  // of the allowed cores
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && nth++ / share == local_rank) {
      CPU_SET(core, &own);
    }
  }
  sched_setaffinity(0, sizeof own, &own);
}

}  // namespace ddp
