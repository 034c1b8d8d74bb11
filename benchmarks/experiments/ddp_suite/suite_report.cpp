#include "experiments/ddp_suite/suite_report.h"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ddp/meters/statistics.h"
#include "ddp/meters/whole_file.h"

namespace ddp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kPercents = {50, 75, 90, 95};

const Parameters::value_type::second_type* find_label(const Series& series,
                                                      const std::string& name) {
  const auto found =
      std::ranges::find_if(series.labels, [&](const auto& label) { return label.first == name; });
  return found == series.labels.end() ? nullptr : &found->second;
}

template <typename Value>
Value label_of(const Series& series, const std::string& name) {
  const auto* label = find_label(series, name);
  TORCH_CHECK(label != nullptr, "a series has no label ", name);
  return std::get<Value>(*label);
}

// Repetitions without DDP have no bucket size, and belong to every choice.
bool belongs_to(const Series& series, const SuiteChoice& choice) {
  return find_label(series, "bucket_size") == nullptr ||
         (label_of<std::string>(series, "variant") == choice.variant &&
          label_of<std::int64_t>(series, "bucket_size") == choice.bucket_size);
}

std::string or_none(const std::string& version) { return version.empty() ? "None" : version; }

std::string in_words(const std::vector<std::int64_t>& bucket_sizes) {
  std::string words;
  for (const std::int64_t size : bucket_sizes) {
    words += (words.empty() ? "" : ", ") + std::to_string(size) + "MB";
  }
  return words;
}

Json to_json(const SuiteRows::Round& round) {
  std::vector<std::int64_t> ranks(round.ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  return {{"ranks", ranks}, {"measurements", round.seconds}};
}

}  // namespace

std::vector<SuiteRows> select_rows(const Result& result, const SuiteChoice& choice) {
  std::vector<SuiteRows> models;
  for (const Series& series : result.series) {
    if (!belongs_to(series, choice)) {
      continue;
    }
    const auto model = label_of<std::string>(series, "model");
    if (models.empty() || models.back().model != model) {
      models.push_back({.model = model, .rounds = {}});
    }
    models.back().rounds.push_back({.name = label_of<std::string>(series, "round"),
                                    .ranks = label_of<std::int64_t>(series, "ranks"),
                                    .seconds = series.values});
  }
  return models;
}

void print_header(const SuiteHeader& header, const Topology& topology) {
  const std::string title = "PyTorch distributed benchmark suite";
  const std::string rule(title.size(), '-');
  const std::string source = "--- " + topology.command + " ---";
  std::printf("%s\n%s\n%s\n\n", rule.c_str(), title.c_str(), rule.c_str());
  std::printf("* PyTorch version: %s\n", TORCH_VERSION);
  std::printf("* CUDA version: %s\n", or_none(header.cuda_version).c_str());
  std::printf("* Distributed backend: %s\n", header.backend.c_str());
  std::printf("* Maximum bucket size: %s\n", in_words(header.bucket_sizes).c_str());
  if (header.device == "cpu") {
    std::printf("* Device: cpu; what is called a GPU below is a rank with one thread\n");
  }
  std::printf("\n%s\n\n%s\n%s\n\n", source.c_str(), topology.text.c_str(),
              std::string(source.size(), '-').c_str());
  std::fflush(stdout);
}

void print_rows(const SuiteRows& rows, std::int64_t batch_size, const std::string& name) {
  std::printf("\nBenchmark: %s with batch size %lld%s%s\n\n%22s", rows.model.c_str(),
              static_cast<long long>(batch_size), name.empty() ? "" : ", ", name.c_str(), "");
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
                      const std::vector<SuiteRows>& models, std::int64_t batch_size) {
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
                         {"bucket_size", header.bucket_sizes.at(0)},
                         {"benchmark_results", results}};
  write_whole_file(file, document.dump(1) + "\n", "--json");
}

}  // namespace ddp
