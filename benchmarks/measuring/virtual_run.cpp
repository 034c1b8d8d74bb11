#include "measuring/virtual_run.h"

#include <ATen/Parallel.h>

#include <cstdio>

#include "ddp/launching/environment.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "measuring/benchmark.h"

namespace ddp {

int run_in_virtual_time(const BenchmarkOptions& options, const std::function<void(Client&)>& body,
                        const std::function<void(const Evidence&)>& report) {
  return run_and_report([&] {
    TORCH_CHECK_VALUE(
        !read_launch_environment(),
        "the simulated network is this program's own, with ranks that it forks: start it without "
        "torchrun, and with --world-size");
    TORCH_CHECK_VALUE(options.device == "cpu",
                      "the simulated network moves CPU tensors only; leave out --device ",
                      options.device);
    at::set_num_threads(1);  // this process moves the ranks' data, and forks
    UnfinishedCode unfinished;
    const Evidence evidence = run_refereed(
        {.ranks = options.world_size, .hold = false},
        {.deadline = std::chrono::hours(6), .show_output = true},
        [&](Client& client, RankContext&) { unfinished.look_for_it([&] { body(client); }); });
    if (unfinished.found()) {
      return kUnfinished;
    }
    if (evidence.reports.ok()) {
      report(evidence);
      return 0;
    }
    std::fprintf(stderr, "%s\n", evidence.reports.describe().c_str());
    return 1;
  });
}

DeviceContext virtual_context(Client& client) {
  return {.device = at::kCPU, .group = make_group(client.shared_from_this())};
}

std::int64_t simulated_cost(const Seen& seen, int /*rank*/) {
  return seen.kind == EventKind::kCompute ? seen.number : 0;
}

}  // namespace ddp
