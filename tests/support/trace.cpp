#include "support/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "ddp/referee/virtual_time.h"
#include "ddp/simulation/timeline_file.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

// The prefix of a rank's message to the parent that contains spans, and their largest number.
constexpr std::string_view kSpans = "spans: ";
constexpr std::size_t kSpansOfAMessage = 1'000;

struct Collected {
  int worlds = 0;  // of the running test
  std::string test;
  std::vector<RankSpans> ranks;
};

Collected& collected() {
  static Collected all;
  return all;
}

std::vector<Span>& spans_of(int rank) {
  auto& ranks = collected().ranks;
  while (static_cast<std::size_t>(rank) >= ranks.size()) {
    ranks.push_back({static_cast<int>(ranks.size()), {}});
  }
  return ranks[rank].spans;
}

}  // namespace

void count_world() {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  Collected& all = collected();
  all.worlds = test == all.test ? all.worlds + 1 : 1;
  all.test = test;
}

std::shared_ptr<Timeline> make_world_timeline(int world_size) {
  if (settings().trace.empty()) {
    return nullptr;
  }
  auto timeline = std::make_shared<Timeline>();
  timeline->set_group(collected().test + ", world " + std::to_string(collected().worlds) + ": " +
                      std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks"));
  return timeline;
}

void send_spans(const RankContext& context, const std::vector<Span>& spans) {
  for (std::size_t begin = 0; begin < spans.size(); begin += kSpansOfAMessage) {
    const std::size_t end = std::min(begin + kSpansOfAMessage, spans.size());
    context.send_to_parent(std::string(kSpans) +
                           to_text({spans.begin() + static_cast<std::ptrdiff_t>(begin),
                                    spans.begin() + static_cast<std::ptrdiff_t>(end)}));
  }
}

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

bool collect_spans(int rank, const std::string& message) {
  if (!message.starts_with(kSpans)) {
    return false;
  }
  const auto spans = spans_of_text(message.substr(kSpans.size()));
  spans_of(rank).insert(spans_of(rank).end(), spans.begin(), spans.end());
  return true;
}

void write_trace() {
  if (settings().trace.empty()) {
    return;
  }
  try {
    write_chrome_trace(collected().ranks, settings().trace);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

}  // namespace ddp::testing
