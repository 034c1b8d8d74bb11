#include "grader/picture.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>

#include "ddp/ranks/rank_output.h"
#include "grader/chain.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostSpans =
    60;  // of a kind and rank: a page has room for some dozen pictures
constexpr std::size_t kMostArrows = 200;
constexpr std::size_t kMostBars = 60;
constexpr std::int64_t kOfALayer = 100'000;  // ns, where a claim has no times of its own

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The rank that an event is of, and its number there.
std::pair<int, std::size_t> place_of(const Evidence& evidence, const Seen& event) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    const SeenList& said = evidence.of[rank];
    if (!said.empty() && &event >= said.data() && &event < said.data() + said.size()) {
      return {static_cast<int>(rank), static_cast<std::size_t>(&event - said.data())};
    }
  }
  TORCH_CHECK(false, "a finding is about an event of another run");
}

// What an event that breaks a claim is, where the claim does not say it.
std::string kind_of(const Seen& seen) {
  switch (seen.kind) {
    case EventKind::kLaunch:
      return "operation";
    case EventKind::kWait:
    case EventKind::kBlocked:
      return "wait";
    case EventKind::kTouch:
      return "access in flight";
    case EventKind::kThrew:
      return seen.detail.empty() ? "no error" : "exception";
    default:
      return "from here on";
  }
}

// The line of the stage that launched an operation.
const std::string& line_of(const Seen& launch) {
  static std::map<std::int64_t, std::string> known = {{-1, ""}};
  const auto [found, is_new] = known.try_emplace(launch.caller);
  if (is_new) {
    std::ostringstream offset;
    offset << std::hex << launch.caller;
    const auto places = name_places(
        std::vector<StackFrame>{{settings().stage_library, offset.str(), "?"}}, options_of_ranks());
    found->second = places.empty() ? "" : places.front();
  }
  return found->second;
}

// The part of a run that is drawn.
class Window {
 public:
  Window(const Run& run, const Finding& finding, int step)
      : evidence_(run.evidence),
        cost_(finding.times ? finding.times->cost
                            : compute_cost(kOfALayer, [](std::int64_t, int) { return kOfALayer; })),
        time_(evidence_, finding.times ? finding.times->network : NetworkModel{}, cost_),
        step_(step),
        begin_(time_.has_step(step) ? time_.step(step).begin : 0),
        end_(time_.has_step(step) ? time_.step(step).end : 0) {
    if (!evidence_.reports.ok()) {  // room for what never ended
      end_ += std::max<std::int64_t>((end_ - begin_) / 4, 10'000);
    }
  }

  Json chart(const std::string& caption, const Finding& finding) {
    Json chart = {{"caption", caption}, {"lanes", Json::array()}, {"arrows", Json::array()}};
    for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
      chart["lanes"].push_back(lane(rank));
    }
    for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
      add_messages(rank, chart["arrows"]);
      add_waits(rank, chart["arrows"]);
    }
    chart["marks"] = marks(finding, chart["lanes"]);
    chart["end"] = end_ - begin_;
    return chart;
  }

  std::int64_t length() const { return end_ - begin_; }

 private:
  Json span(const std::string& name, std::int64_t begin, std::int64_t end) const {
    return {{"name", name}, {"begin", begin - begin_}, {"end", end - begin_}};
  }

  bool shows(const Span& span) const {
    if (span.begin_ns == span.end_ns) {
      return span.begin_ns >= begin_ && span.end_ns <= end_;
    }
    return span.end_ns > begin_ && span.begin_ns < end_;
  }

  Json lane(int rank) const {
    Json parts = Json::array();
    Json computing = Json::array();
    Json operations = Json::array();
    std::set<std::int64_t> complete;
    for (const Span& each : time_.spans(rank)) {
      complete.insert(each.operation);
      const bool communicates = each.kind == SpanKind::kCommunication;
      Json& list = communicates ? operations : each.kind == SpanKind::kPhase ? parts : computing;
      if (shows(each) && list.size() < kMostSpans) {
        list.push_back(span(each.name, each.begin_ns, each.end_ns));
        if (communicates) {
          list.back().update({{"launched", each.launched_ns - begin_},
                              {"bytes", each.bytes},
                              {"number", each.operation},
                              {"line", line_of(evidence_.launch_of(rank, each.operation))}});
        }
      }
    }
    add_open(rank, complete, operations);
    return {{"name", "rank " + std::to_string(rank)},
            {"scopes", scopes(rank)},
            {"parts", parts},
            {"computing", computing},
            {"operations", operations}};
  }

  // NoSync scopes in this step.
  Json scopes(int rank) const {
    Json scopes = Json::array();
    bool inside = false;
    for (std::size_t event = 0; event < evidence_.of[rank].size(); ++event) {
      const Place& place = evidence_.of[rank][event].place;
      const std::int64_t at = time_.time_of(rank, event);
      if (place.no_sync && place.step == step_ && !inside) {
        scopes.push_back({{"begin", at - begin_}, {"end", at - begin_}});
      } else if (place.no_sync && place.step == step_) {
        scopes.back()["end"] = at - begin_;
      }
      inside = place.no_sync && place.step == step_;
    }
    return scopes;
  }

  // Operations that never ended, to the right edge.
  void add_open(int rank, const std::set<std::int64_t>& complete, Json& operations) const {
    for (const Seen& launch : evidence_.of[rank]) {
      if (launch.kind == EventKind::kLaunch && launch.place.step == step_ &&
          !complete.contains(launch.operation) && operations.size() < kMostSpans) {
        const std::int64_t at = time_.time_of(rank, launch.order);
        operations.push_back(span(describe_operation(launch), at, end_));
        operations.back().update({{"launched", at - begin_},
                                  {"bytes", launch.bytes},
                                  {"number", launch.operation},
                                  {"line", line_of(launch)},
                                  {"open", true}});
      }
    }
  }

  // From senders to receivers.
  void add_messages(int rank, Json& arrows) const {
    for (const Span& each : time_.spans(rank)) {
      if (each.operation < 0 || !shows(each) || arrows.size() >= kMostArrows) {
        continue;
      }
      const Seen& launch = evidence_.launch_of(rank, each.operation);
      if (launch.type == c10d::OpType::SEND) {
        arrows.push_back(arrow(rank, receiver(launch), each.launched_ns, each.end_ns, each.name));
      }
    }
  }

  // Where nobody could go on: for whom this rank waits.
  void add_waits(int rank, Json& arrows) const {
    const Seen* launch = awaited_at_end(rank);
    for (const int other : launch != nullptr ? missing_in(rank, *launch) : std::vector<int>()) {
      arrows.push_back(arrow(rank, other, end_, end_,
                             "rank " + std::to_string(rank) + " waits for rank " +
                                 std::to_string(other) + ": " + describe_operation(*launch)));
      arrows.back()["waits"] = true;
    }
  }

  Json arrow(int from, int to, std::int64_t begin, std::int64_t end,
             const std::string& text) const {
    return {{"from", from},
            {"to", to},
            {"begin", begin - begin_},
            {"end", end - begin_},
            {"text", text}};
  }

  int receiver(const Seen& message) const {
    return members_of(evidence_.world, message.group).at(message.peer);
  }

  // The operation that a rank waited for when a run ended before its time; null if it did not wait.
  const Seen* awaited_at_end(int rank) const {
    if (evidence_.reports.ok()) {
      return nullptr;
    }
    std::set<std::int64_t> done;
    const SeenList& said = evidence_.of[rank];
    for (auto seen = said.rbegin(); seen != said.rend(); ++seen) {
      if (seen->kind == EventKind::kDone) {
        done.insert(seen->operation);
      } else if (seen->kind == EventKind::kWait && !done.contains(seen->operation)) {
        return &evidence_.launch_of(rank, seen->operation);
      }
    }
    return nullptr;
  }

  // Who has not done their part in an operation: the other end of a message, or who has launched fewer
  // collectives of the group.
  std::vector<int> missing_in(int rank, const Seen& launch) const {
    if (c10d::isP2POp(launch.type)) {
      return {receiver(launch)};
    }
    std::vector<int> missing = members_of(evidence_.world, launch.group);
    const std::size_t turn = launched_before(rank, launch.group, launch.operation);
    std::erase_if(missing, [&](int member) {
      return launched_before(member, launch.group, std::numeric_limits<std::int64_t>::max()) > turn;
    });
    return missing;
  }

  std::size_t launched_before(int rank, GroupIndex group, std::int64_t operation) const {
    return std::ranges::count_if(evidence_.of[rank], [&](const Seen& seen) {
      return seen.kind == EventKind::kLaunch && seen.group == group && seen.operation < operation &&
             !c10d::isP2POp(seen.type);
    });
  }

  Json marks(const Finding& finding, Json& lanes) const {
    Json marks = Json::array();
    for (const Finding::Spot& spot : finding.spots) {
      const Seen& seen = *spot.event;
      const auto [rank, place] = place_of(evidence_, seen);
      Json& operations = lanes[rank]["operations"];
      const auto found = std::ranges::find_if(
          operations, [&](const Json& each) { return each["number"] == seen.operation; });
      const bool drawn = seen.operation >= 0 && found != operations.end();
      if (drawn) {
        (*found)["marked"] = true;
      }
      marks.push_back({{"lane", rank},
                       {"operation", drawn ? found - operations.begin() : -1},
                       {"at", time_.time_of(rank, place) - begin_},
                       {"kind", spot.kind.empty() ? kind_of(seen) : spot.kind},
                       {"text", first_line(finding.text)}});
    }
    return marks;
  }

  const Evidence& evidence_;
  const ComputeCost cost_;
  const VirtualTime time_;
  const int step_;
  std::int64_t begin_, end_;
};

// The step of the first place that is marked; of one that marks none, the first step; -1: before it.
int step_of(const Run& run, const Finding& finding) {
  if (finding.times) {
    return finding.times->step;
  }
  if (!finding.spots.empty()) {
    return finding.spots.front().event->place.step;
  }
  return run.evidence.of.empty() ? -1 : 0;
}

// By how much a step missed its time, as a bar between both ends.
Json bar_of(const Finding::Times& times, std::int64_t took) {
  const std::int64_t more = took - times.expected_ns;
  return {
      {"begin", times.expected_ns},
      {"end", took},
      {"text", duration(std::abs(more)) + (more > 0 ? " longer" : " shorter") + " than expected"}};
}

// The operations that make up the time that a step is to take.
Json expected_chart(const Finding::Times& times) {
  Json operations = Json::array();
  for (const Span& each : times.chain) {
    operations.push_back({{"name", each.name},
                          {"begin", each.begin_ns},
                          {"end", each.end_ns},
                          {"launched", each.launched_ns},
                          {"bytes", each.bytes}});
  }
  const Json lane = {{"name", "expected"},
                     {"parts", {{{"name", "the step"}, {"begin", 0}, {"end", times.expected_ns}}}},
                     {"computing", Json::array()},
                     {"operations", operations}};
  return {{"caption", "expected: " + duration(times.expected_ns)},
          {"end", times.expected_ns},
          {"lanes", {lane}}};
}

// What a rank has counted, up to and with the moment that breaks the claim.
Json memory_of(const Run& run, const Finding& finding) {
  const auto is_count = [](const Seen& seen) {
    return seen.kind == EventKind::kFact && seen.text.starts_with(kBytes);
  };
  if (finding.spots.empty()) {
    return nullptr;
  }
  const auto [rank, place] = place_of(run.evidence, *finding.spots.front().event);
  const auto& said = run.evidence.of[rank];
  if (!is_count(said[place])) {
    return nullptr;
  }
  Json series = Json::array();
  std::int64_t limit = 0;
  for (std::size_t event = 0; event <= place; ++event) {
    if (is_count(said[event]) && said[event].text == kBytesAllowed) {
      limit = said[event].number;
    } else if (is_count(said[event])) {
      series.push_back({{"name", said[event].text.substr(std::strlen(kBytes))},
                        {"bytes", said[event].number},
                        {"limit", limit}});
    }
  }
  if (series.size() > kMostBars) {
    series.erase(series.begin(), series.end() - kMostBars);
  }
  return {{"name", "rank " + std::to_string(rank)}, {"limit", limit}, {"series", series}};
}

Json values_of(const Finding::Values& values) {
  Json rows = Json::array();
  for (const auto& row : values.rows) {
    rows.push_back({row.index, row.expected, row.actual});
  }
  return {{"name", values.name}, {"elements", values.elements}, {"rows", rows}};
}

}  // namespace

nlohmann::json picture_of(const Scenario& scenario, const Run& run, const Finding& finding,
                          const Run* usual) {
  const int step = step_of(run, finding);
  Json charts = Json::array();
  if (finding.times) {
    charts.push_back(expected_chart(*finding.times));
  }
  if (usual != nullptr && run.late_callbacks()) {
    charts.push_back(Window(*usual, finding, step).chart("with callbacks in time", {}));
  }
  Window window(run, finding, step);
  charts.push_back(window.chart(
      run.late_callbacks() ? "what happened, with late callbacks" : "what happened", finding));
  if (finding.times && finding.times->expected_ns != window.length()) {
    charts.back()["bar"] = bar_of(*finding.times, window.length());
  }
  return {{"title", scenario.name},
          {"charts", charts},
          {"memory", memory_of(run, finding)},
          {"values", finding.values ? values_of(*finding.values) : Json()}};
}

}  // namespace ddp::testing
