#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/StringUtil.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "ddp/meters/statistics.h"
#include "ddp/meters/whole_file.h"
#include "experiments/ddp_suite/suite.h"

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

using Json = nlohmann::ordered_json;

// How a machine's processors are connected, and the command that reported it.
struct Topology {
  std::string command;  // "nvidia-smi topo -m", "lscpu"
  std::string text;     // one or more whole lines
};

constexpr std::array kPercents = {50, 75, 90, 95};

Json to_json(const SuiteRows::Round& round) {
  std::vector<std::int64_t> ranks(round.ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  return {{"ranks", ranks}, {"measurements", round.seconds}};
}

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

// On rank 0; others get none. Collective.
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

}  // namespace

std::string cuda_version(const at::Device& device) {
  if (device.is_cpu()) {
    return "";
  }
  const long version = at::detail::getCUDAHooks().versionCUDART();  // 13.0 is 13000
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::vector<SuiteRows> select_rows(const Result& result, const std::string& variant,
                                   std::int64_t bucket_size) {
  std::vector<SuiteRows> models;
  for (const Series& series : result.series) {
    const auto size = label_of<std::int64_t>(series, "bucket_size");  // none without DDP
    if (size && (*size != bucket_size || label_of<std::string>(series, "variant") != variant)) {
      continue;
    }
    const std::string model = *label_of<std::string>(series, "model");
    if (models.empty() || models.back().model != model) {
      models.push_back({.model = model, .rounds = {}});
    }
    models.back().rounds.push_back({.name = *label_of<std::string>(series, "round"),
                                    .ranks = *label_of<std::int64_t>(series, "ranks"),
                                    .seconds = series.values});
  }
  return models;
}

void print_header(const SuiteHeader& header, const RankContext& context) {
  const Topology topology = gather_topology(context);
  if (context.rank > 0) {
    return;
  }
  const std::string title = "PyTorch distributed benchmark suite";
  const std::string rule(title.size(), '-');
  const std::string source = "--- " + topology.command + " ---";
  std::printf("%s\n%s\n%s\n\n", rule.c_str(), title.c_str(), rule.c_str());
  std::printf("* PyTorch version: %s\n", TORCH_VERSION);
  std::printf("* CUDA version: %s\n",
              header.cuda_version.empty() ? "None" : header.cuda_version.c_str());
  std::printf("* Distributed backend: %s\n", header.backend.c_str());
  std::printf("* Maximum bucket size: %sMB\n", c10::Join("MB, ", header.bucket_sizes).c_str());
  if (header.device == "cpu") {
    std::printf("* Device: cpu; what is called a GPU below is a rank with one thread\n");
  }
  std::printf("\n%s\n\n%s\n%s\n\n", source.c_str(), topology.text.c_str(),
              std::string(source.size(), '-').c_str());
  std::fflush(stdout);
}

void print_rows(const SuiteRows& rows, std::int64_t batch_size, const std::string& name) {
  std::printf("\nBenchmark: %s with batch size %lld, %s\n\n%22s", rows.model.c_str(),
              static_cast<long long>(batch_size), name.c_str(), "");
  for (std::size_t i = 0; i < kPercents.size(); ++i) {
    std::printf("%14s%10s", "sec/iter", "ex/sec");
  }
  std::printf("\n");
  for (const SuiteRows::Round& round : rows.rounds) {
    std::printf("%4lld GPUs -- %8s:", static_cast<long long>(round.ranks), round.name.c_str());
    for (const int percent : kPercents) {
      const double seconds = percentile(round.seconds, percent);
      std::printf("  p%02d:  %1.3fs  %6lld/s", percent, seconds,
                  static_cast<long long>(static_cast<double>(batch_size) / seconds));
    }
    std::printf("\n");
  }
}

void write_suite_json(const std::filesystem::path& file, const SuiteHeader& header,
                      std::int64_t bucket_size, const std::vector<SuiteRows>& models,
                      std::int64_t batch_size) {
  Json results = Json::array();
  for (const SuiteRows& rows : models) {
    Json rounds = Json::array();
    for (const SuiteRows::Round& round : rows.rounds) {
      rounds.push_back(to_json(round));
    }
    results.push_back({{"model", rows.model}, {"batch_size", batch_size}, {"result", rounds}});
  }
  const Json cuda = header.cuda_version.empty() ? Json() : Json(header.cuda_version);
  const Json document = {{"pytorch_version", TORCH_VERSION},
                         {"cuda_version", cuda},
                         {"distributed_backend", header.backend},
                         {"bucket_size", bucket_size},
                         {"benchmark_results", results}};
  write_whole_file(file, document.dump(1) + "\n", "--json");
}

}  // namespace ddp
