#include "grader/run_output.h"

#include <cstdio>
#include <iostream>
#include <regex>

#include "ddp/timeline/timeline.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/chain.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

std::vector<RankSpans>& collected() {
  static std::vector<RankSpans> ranks;
  return ranks;
}

std::vector<Span>& spans_of(int rank) {
  while (static_cast<std::size_t>(rank) >= collected().size()) {
    collected().push_back({static_cast<int>(collected().size()), {}});
  }
  return collected()[rank].spans;
}

}  // namespace

std::string printed_below(const std::string& finding, const RankReports& reports) {
  std::smatch found;
  if (std::regex_search(finding, found, std::regex("\\brank (\\d{1,2})\\b"))) {
    const std::size_t rank = std::stoul(found[1]);
    if (rank < reports.ranks.size() && !reports.ranks[rank].log.empty()) {
      return "\n" + reports.ranks[rank].printed();
    }
  }
  for (const RankReport& report : reports.ranks) {
    if (!report.log.empty()) {
      return "\n" + report.printed();
    }
  }
  return "";
}

void pass_prints_on(const std::string& scenario, const RankReports& reports) {
  for (const RankReport& report : reports.ranks) {
    if (!report.log.empty()) {
      std::cout << "rank " << report.rank << " in \"" << scenario << "\":\n"
                << report.log << (report.log.ends_with('\n') ? "" : "\n") << std::flush;
    }
  }
}

void collect_spans(const Evidence& evidence, const std::string& scenario) {
  if (settings().trace.empty()) {
    return;
  }
  constexpr std::int64_t kOfALayer = 100'000;
  const VirtualTime time(evidence, {},
                         compute_cost(kOfALayer, [](std::int64_t, int) { return kOfALayer; }));
  for (int rank = 0; rank < evidence.world.ranks; ++rank) {
    for (Span span : time.spans(rank)) {
      span.group = scenario;
      spans_of(rank).push_back(std::move(span));
    }
  }
}

void write_trace() {
  if (settings().trace.empty()) {
    return;
  }
  try {
    write_chrome_trace(collected(), settings().trace);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

}  // namespace ddp::testing
