// The file of a timeline: what Perfetto and chrome://tracing need, nothing lost, complete or
// absent.
#include "ddp/simulation/timeline_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Span compute(const std::string& name, std::int64_t begin, std::int64_t end) {
  return {.name = name, .group = "overlapped", .begin_ns = begin, .end_ns = end};
}

Span operation(const std::string& name, std::int64_t launched, std::int64_t begin,
               std::int64_t end) {
  return {.kind = SpanKind::kCommunication,
          .name = name,
          .group = "overlapped",
          .begin_ns = begin,
          .end_ns = end,
          .launched_ns = launched,
          .bytes = 4'000};
}

class TimelineFile : public testing::FolderTest {
 protected:
  // The trace's events for these ranks.
  std::vector<Json> written(const std::vector<RankSpans>& ranks) {
    const fs::path file = folder_ / "trace.json";
    write_chrome_trace(ranks, file);
    const Json document = Json::parse(std::ifstream(file));
    EXPECT_EQ(document["displayTimeUnit"], "ns");
    return document["traceEvents"];
  }

  static std::vector<Json> of_phase(const std::vector<Json>& events, const std::string& phase) {
    std::vector<Json> found;
    std::ranges::copy_if(events, std::back_inserter(found),
                         [&](const Json& event) { return event["ph"] == phase; });
    return found;
  }

  static Json only(const std::vector<Json>& events, const std::string& name) {
    for (const Json& event : events) {
      if (event["name"] == name) {
        return event;
      }
    }
    ADD_FAILURE() << "no event " << name;
    return {};
  }
};

TEST_F(TimelineFile, NamesProcessesAndThreads) {
  const auto events =
      written({{.rank = 0, .spans = {compute("forward", 0, 5), operation("all-reduce", 5, 5, 9)}},
               {.rank = 1, .spans = {compute("forward", 0, 6), operation("all-reduce", 6, 6, 9)}}});
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  for (const Json& event : of_phase(events, "M")) {
    if (event["name"] == "process_name") {
      processes[event["pid"]] = event["args"]["name"];
    } else if (event["name"] == "thread_name") {
      threads[{event["pid"], event["tid"]}] = event["args"]["name"];
    }
  }
  EXPECT_EQ(processes,
            (std::map<int, std::string>{{1, "overlapped, rank 0"}, {2, "overlapped, rank 1"}}));
  std::set<int> distinct;
  for (const auto& [thread, name] : threads) {
    distinct.insert(thread.second);
  }
  EXPECT_EQ(distinct.size(), 4) << "a number belongs to one thread";
  for (const Json& event : of_phase(events, "X")) {
    const bool communicates = event["name"] == "all-reduce";
    EXPECT_EQ((threads.at({event["pid"], event["tid"]})),
              communicates ? "communication" : "compute");
    EXPECT_EQ(event["cat"], communicates ? "communication" : "compute");
  }
}

// A double is precise enough for a month of nanoseconds, and times are relative to an origin.
TEST_F(TimelineFile, LosesNoNanosecond) {
  const std::int64_t month = 2'592'000'000'000'000;
  const auto events = written(
      {{.rank = 0, .spans = {compute("a", 1, 1'000'002), compute("b", month + 1, month + 4)}}});
  const auto nanoseconds = [](const Json& value) {
    return std::llround(value.get<double>() * 1e3);
  };
  EXPECT_EQ(nanoseconds(only(events, "a")["ts"]), 1);
  EXPECT_EQ(nanoseconds(only(events, "a")["dur"]), 1'000'001);
  EXPECT_EQ(nanoseconds(only(events, "b")["ts"]), month + 1);
  EXPECT_EQ(nanoseconds(only(events, "b")["dur"]), 3);
}

TEST_F(TimelineFile, LeadsAnArrowFromTheLaunchToTheOperation) {
  const auto events =
      written({{.rank = 0,
                .spans = {compute("backward", 0, 9'000), operation("sum", 2'000, 3'000, 5'000)}}});
  const Json whole = only(of_phase(events, "X"), "sum");
  EXPECT_EQ(whole["ts"], 3.0);
  EXPECT_EQ(whole["dur"], 2.0);
  EXPECT_EQ(whole["args"], Json({{"bytes", 4'000}, {"launched", 2.0}}));
  const Json tail = only(of_phase(events, "s"), "sum");
  const Json head = only(of_phase(events, "f"), "sum");
  EXPECT_EQ(tail["id"], head["id"]);
  EXPECT_EQ(tail["ts"], 2.0);
  EXPECT_EQ(tail["tid"], only(events, "backward")["tid"]);
  EXPECT_EQ(head["ts"], 3.0);
  EXPECT_EQ(head["tid"], whole["tid"]);
}

// Viewers require the spans of a row to be nested or disjoint.
TEST_F(TimelineFile, GivesOperationsAtTheSameTimeRowsOfTheirOwn) {
  const auto events =
      written({{.rank = 0,
                .spans = {operation("a", 0, 0, 10), operation("b", 5, 5, 15),
                          operation("c", 10, 10, 20), operation("d", 16, 16, 18)}}});
  const auto row = [&](const char* name) { return only(of_phase(events, "X"), name)["tid"]; };
  EXPECT_NE(row("a"), row("b"));
  EXPECT_EQ(row("c"), row("a"));
  EXPECT_EQ(row("d"), row("b"));
}

TEST_F(TimelineFile, PutsWhatEnclosesOthersFirst) {
  const auto events =
      written({{.rank = 0, .spans = {compute("inner", 10, 15), compute("outer", 10, 30)}}});
  EXPECT_EQ(of_phase(events, "X")[0]["name"], "outer");
}

TEST_F(TimelineFile, MovesZeroWhereSomethingHappenedBefore) {
  const auto events = written({{.rank = 0, .spans = {operation("a", -3'000, 0, 1'000)}},
                               {.rank = 1, .spans = {compute("b", 5'000, 6'000)}}});
  EXPECT_EQ(only(events, "a")["ts"], 3.0);
  EXPECT_EQ(only(events, "a")["args"]["launched"], 0.0);
  EXPECT_EQ(only(events, "b")["ts"], 8.0);
}

TEST_F(TimelineFile, DrawsAnInstantAsALine) {
  const auto events = written({{.rank = 0,
                                .spans = {{.kind = SpanKind::kInstant,
                                           .name = "end",
                                           .group = "",
                                           .begin_ns = 4'000,
                                           .end_ns = 4'000}}}});
  const Json moment = only(events, "end");
  EXPECT_EQ(moment["ph"], "i");
  EXPECT_EQ(moment["s"], "p");
  EXPECT_EQ(moment["ts"], 4.0);
  EXPECT_EQ(only(events, "process_name")["args"]["name"], "rank 0") << "a group without a name";
}

TEST_F(TimelineFile, HasNoProcessForARankThatIsNotInAGroup) {
  Span other = compute("alone", 0, 1);
  other.group = "of rank 1";
  const auto events = written({{.rank = 0, .spans = {compute("both", 0, 1)}},
                               {.rank = 1, .spans = {compute("both", 0, 1), other}}});
  std::vector<std::string> processes;
  for (const Json& event : events) {
    if (event["name"] == "process_name") {
      processes.push_back(event["args"]["name"]);
    }
  }
  EXPECT_EQ(processes, (std::vector<std::string>{"overlapped, rank 0", "overlapped, rank 1",
                                                 "of rank 1, rank 1"}));
}

TEST_F(TimelineFile, SaysWhyItCannotBeWritten) {
  std::ofstream(folder_ / "a_file") << "in the way";
  const fs::path file = folder_ / "a_file" / "trace.json";
  try {
    write_chrome_trace({{.rank = 0, .spans = {compute("a", 0, 1)}}}, file);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()), "cannot write " + file.string() +
                                             ": Not a directory; choose another place with "
                                             "--trace");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST(GatherSpans, BringsAllToRank0) {
  testing::expect_plain_ranks_pass({.world_size = 3}, [](RankContext& context) {
    // More than the store accepts in one piece.
    const std::string long_name(context.rank == 1 ? 9 << 20 : 20, 'x');
    const std::vector<Span> mine = {compute("rank " + std::to_string(context.rank), 1, 2),
                                    operation(long_name, -1, 2, 3)};
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto ranks = gather_spans(mine, context);
      ASSERT_EQ(ranks.size(), context.rank == 0 ? 3 : 0);
      for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
        EXPECT_EQ(ranks[rank].rank, rank);
        ASSERT_EQ(ranks[rank].spans.size(), 2);
        EXPECT_EQ(ranks[rank].spans[0].name, "rank " + std::to_string(rank));
        const Span& span = ranks[rank].spans[1];
        EXPECT_EQ(span.name.size(), rank == 1 ? 9 << 20 : 20);
        EXPECT_EQ(span.kind, SpanKind::kCommunication);
        EXPECT_EQ(span.group, "overlapped");
        EXPECT_EQ(span.launched_ns, -1);
        EXPECT_EQ(span.begin_ns, 2);
        EXPECT_EQ(span.end_ns, 3);
        EXPECT_EQ(span.bytes, 4'000);
      }
    }
  });
}

}  // namespace
}  // namespace ddp
