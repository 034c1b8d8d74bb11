#include "experiments/ddp_suite/topology.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <thread>

namespace ddp {
namespace {

// The output of a command; empty if it is missing or fails.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(("LC_ALL=C " + command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) {
    return "";
  }
  std::string output;
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) {
    output += part.data();
  }
  return pclose(pipe) == 0 ? output : "";
}

// Without values that vary over time, such as clock rates, and anything but topology.
std::string lines_of_topology(const std::string& lscpu) {
  constexpr std::array kBeginnings = {"CPU(s)", "Model name", "Thread(s)", "Core(s)", "Socket(s)",
                                      "L1",     "L2",         "L3",        "NUMA"};
  std::istringstream lines(lscpu);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const std::string text = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    for (const char* beginning : kBeginnings) {
      if (text.starts_with(beginning)) {
        kept.append(text).append("\n");
      }
    }
  }
  return kept;
}

}  // namespace

Topology find_topology() {
  const std::string gpus = "nvidia-smi topo -m";
  if (const std::string text = output_of(gpus); !text.empty()) {
    return {.command = gpus, .text = text};
  }
  std::string text = lines_of_topology(output_of("lscpu"));
  if (text.empty()) {
    text = "CPU(s): " + std::to_string(std::thread::hardware_concurrency()) +
           " (neither nvidia-smi nor lscpu is here)\n";
  }
  return {.command = "lscpu", .text = text};
}

Topology gather_topology(const RankContext& context) {
  const StorePtr store = store_for_next_backend(context);
  Topology mine = find_topology();
  store->set(std::to_string(context.rank),
             std::vector<std::uint8_t>(mine.text.begin(), mine.text.end()));
  if (context.rank > 0) {
    return {};
  }
  for (int rank = 1; rank < context.world_size; ++rank) {
    const std::vector<std::uint8_t> other = store->get(std::to_string(rank));
    if (std::string(other.begin(), other.end()) != mine.text) {
      std::fprintf(stderr,
                   "the machine of rank %d differs from rank 0's, whose topology is shown\n", rank);
      break;
    }
  }
  return mine;
}

std::string cuda_version(const at::Device& device) {
  if (device.is_cpu()) {
    return "";
  }
  const long version = at::detail::getCUDAHooks().versionCUDART();  // 13.0 is 13000
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace ddp
