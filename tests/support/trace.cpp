#include "support/trace.h"

#include <cstdio>

#include "ddp/simulation/timeline_file.h"
#include "ddp/simulation/virtual_time.h"
#include "support/settings.h"

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

void collect_spans(const Evidence& evidence, const std::string& body) {
  if (settings().trace.empty()) {
    return;
  }
  const ComputeCost cost = [](const Seen& seen, int) -> std::int64_t {
    const bool forward = seen.kind == EventKind::kPhase && seen.place.phase == Phase::kForward;
    return seen.kind == EventKind::kReady || forward ? 100'000 : 0;
  };
  const VirtualTime time(evidence, {}, cost);
  for (int rank = 0; rank < evidence.world.ranks; ++rank) {
    for (Span span : time.spans(rank)) {
      span.group = body;
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
