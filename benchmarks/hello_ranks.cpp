// Says hello from every rank, and adds up their numbers: try your machines with it before anything
// else.
//
//     hello_ranks --world-size 4
//     torchrun --no-python --nproc-per-node 4 hello_ranks
//     mpirun -n 4 -x MASTER_ADDR=$(hostname) -x MASTER_PORT=29500 hello_ranks
//     srun -n 4 hello_ranks
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "ddp/launch.h"

namespace {

void say_hello(const ddp::RankContext& context) {
  const auto group = ddp::make_gloo_group(context);
  const at::Tensor sum = at::full({1}, context.rank + 1, at::kLong);
  ddp::all_reduce(sum, group);
  const std::string line = "rank " + std::to_string(context.rank) + " of " +
                           std::to_string(context.world_size) + ": the sum of rank + 1 is " +
                           std::to_string(sum.item<std::int64_t>()) + "\n";
  std::fputs(line.c_str(), stdout);  // at once, so that lines of different ranks don't mix
}

}  // namespace

int ddp_main(int argc, char** argv) {
  ddp::LaunchOptions options;
  CLI::App app("Every rank says hello and the sum of all ranks' numbers");
  app.add_option("--world-size", options.world_size,
                 "Ranks to fork, unless a launcher started this")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return ddp::launch(options, say_hello);
}
