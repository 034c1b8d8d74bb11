#include "harness/worlds.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "ddp/backends/cuda.h"
#include "ddp/ranks/environment.h"
#include "harness/command_line.h"

namespace ddp {
namespace {

constexpr const char* kFlag = "--world-size";

std::string backends_on_gpus(const std::vector<int>& worlds) {
  const auto [least, most] = std::ranges::minmax(worlds);
  const int gpus = visible_gpus();
  if (least > gpus) {
    return "gloo";
  }
  return most > gpus ? "nccl, gloo" : "nccl";
}

}  // namespace

std::vector<int> choose_worlds(const CLI::App& line, const BenchmarkOptions& options,
                               const std::vector<int>& preset) {
  try {
    if (const auto environment = read_launch_environment()) {
      return {environment->world_size};
    }
  } catch (const c10::Error&) {
    return {options.world_size};  // launch() reports the error
  }
  return line.count(kFlag) > 0 ? std::vector<int>{options.world_size} : preset;
}

void describe_worlds(CLI::App& line, const std::vector<int>& preset) {
  line.get_option(kFlag)
      ->description("Run only this number of ranks; torchrun, mpirun or srun overrides it")
      ->default_str(c10::Join(", ", preset) + " one after the other");
}

bool can_be_traced(const BenchmarkOptions& options, const std::vector<int>& worlds) {
  if (worlds.size() == 1 || options.trace.empty()) {
    return true;
  }
  std::fprintf(stderr, "--trace draws one world of ranks: choose it with %s\n", kFlag);
  return false;
}

Result header_of_worlds(const std::vector<int>& worlds, Run run, Parameters parameters) {
  run.world_size = worlds.back();
  if (run.device == "cuda" && worlds.size() > 1) {
    run.backend = backends_on_gpus(worlds);
  }
  parameters.emplace_back("worlds", c10::Join(", ", worlds));
  return {.run = std::move(run), .parameters = std::move(parameters)};
}

}  // namespace ddp
