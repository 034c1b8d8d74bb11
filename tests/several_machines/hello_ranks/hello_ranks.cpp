// Says hello from every rank, and adds up their numbers: a first check that your machines work.
// With --rounds it does so for longer, and says how long a round takes: a first look at the network.
//
//     hello_ranks --world-size 4
//     torchrun --no-python --nproc-per-node 4 hello_ranks
#include <ATen/ATen.h>

#include <cstdio>

#include "ddp/launching/launch.h"
#include "ddp/meters/statistics.h"
#include "measuring/command_line.h"

namespace {

struct Options : ddp::LaunchOptions {
  int rounds = 0;
  std::int64_t bytes = 8;
};

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);  // in one call, so that lines of ranks do not mix
  std::fflush(stdout);
}

void say_hello(const ddp::RankContext& context, const Options& options) {
  const auto group = ddp::make_gloo_group(context);
  const at::Tensor sum = at::full({1}, context.rank + 1, at::kLong);
  ddp::all_reduce(sum, group);
  const std::string rank = "rank " + std::to_string(context.rank);
  say(rank + " of " + std::to_string(context.world_size) + ": the sum of rank + 1 is " +
      std::to_string(sum.item<std::int64_t>()));
  if (options.rounds == 0) {
    return;
  }
  const at::Tensor bytes = at::zeros({options.bytes}, at::kByte);
  const ddp::Stopwatch watch;
  for (int round = 0; round < options.rounds; ++round) {
    ddp::all_reduce(bytes, group);
  }
  if (context.rank == 0) {
    std::printf("an all-reduce of %lld bytes takes %.3f ms\n",
                static_cast<long long>(options.bytes), 1e3 * watch.seconds() / options.rounds);
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  Options options;
  CLI::App line("Every rank says hello and the sum of all ranks' numbers");
  line.add_option("--world-size", options.world_size,
                  "Ranks to fork, unless a launcher started this")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  line.add_option("--rounds", options.rounds,
                  "Then so many all-reduces, whose mean time rank 0 says")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  line.add_option("--bytes", options.bytes, "Of each of them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  if (const auto code = ddp::parse(line, argc, argv)) {
    return *code;
  }
  return ddp::launch(options, [&](ddp::RankContext& context) { say_hello(context, options); });
}
