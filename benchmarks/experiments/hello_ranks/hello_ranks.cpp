// Says hello from every rank, and adds up their numbers: a first check that your machines work.
//
//     hello_ranks --world-size 4
//     torchrun --no-python --nproc-per-node 4 hello_ranks
//     mpirun -n 4 -x MASTER_ADDR=$(hostname) -x MASTER_PORT=29500 hello_ranks
//     srun -n 4 hello_ranks
#include <ATen/ATen.h>

#include <cstdio>

#include "ddp/ranks/launch.h"
#include "harness/command_line.h"

namespace {

void say_hello(const ddp::RankContext& context) {
  const auto group = ddp::make_gloo_group(context);
  const at::Tensor sum = at::full({1}, context.rank + 1, at::kLong);
  ddp::all_reduce(sum, group);
  const std::string line = "rank " + std::to_string(context.rank) + " of " +
                           std::to_string(context.world_size) + ": the sum of rank + 1 is " +
                           std::to_string(sum.item<std::int64_t>()) + "\n";
  std::fputs(line.c_str(), stdout);  // in one call, so that lines of different ranks do not mix
}

}  // namespace

int ddp_main(int argc, char** argv) {
  ddp::LaunchOptions options;
  ddp::CommandLine line("Every rank says hello and the sum of all ranks' numbers");
  line.add("--world-size", options.world_size, "Ranks to fork, unless a launcher started this")
      .in_range(1, 32)
      .show_default();
  if (const auto code = line.parse(argc, argv)) {
    return *code;
  }
  return ddp::launch(options, say_hello);
}
