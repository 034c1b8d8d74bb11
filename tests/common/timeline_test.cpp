// Timelines: a span covers what happened, and viewers can open the file.
#include "ddp/timeline/timeline.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/checks.h"
#include "common/ranks.h"
#include "common/temporary_folder.h"
#include "ddp/backends/limited_link.h"
#include "ddp/launching/launch.h"

namespace ddp {
namespace {

constexpr std::int64_t kTimelineElements = 100;
constexpr std::int64_t kBytes = 4 * kTimelineElements;

at::Tensor traced_tensor() { return at::ones({kTimelineElements}); }

// The only span with that name.
Span only(const std::vector<Span>& spans, const std::string& name) {
  std::vector<Span> found;
  std::ranges::copy_if(spans, std::back_inserter(found),
                       [&](const Span& span) { return span.name == name; });
  EXPECT_EQ(found.size(), 1) << name;
  return found.empty() ? Span{} : found.front();
}

void expect_span(const Span& span, std::int64_t begin, std::int64_t end) {
  EXPECT_EQ(span.begin_ns, begin) << span.name;
  EXPECT_EQ(span.end_ns, end) << span.name;
}

TEST(Timeline, HasGroupsAndOrigins) {
  Timeline timeline;
  timeline.add(SpanKind::kCompute, "first", 10, 20);
  timeline.set_group("naive");
  timeline.set_origin(100);
  timeline.add(SpanKind::kInstant, "second", 130, 130);
  const auto spans = timeline.take_spans();
  ASSERT_EQ(spans.size(), 2);
  EXPECT_EQ(spans[0].group, "");
  expect_span(spans[0], 10, 20);
  EXPECT_EQ(spans[1].group, "naive");
  expect_span(spans[1], 30, 30);
  EXPECT_TRUE(timeline.take_spans().empty());
}

CHILD_TEST(Timeline, KeepsAnOperationsGroupAndDropsTheIncomplete) {
  Timeline timeline;
  const at::Tensor weight = traced_tensor().set_requires_grad(true);
  weight.mutable_grad() = traced_tensor();
  timeline.add_names({{"fc.weight", weight}});
  ddp::Operation operation;
  operation.type = c10d::OpType::ALLREDUCE;
  operation.outputs = {weight.grad()};
  timeline.set_group("one");
  const auto first = timeline.launch(operation, 5);
  const auto never = timeline.launch(operation, 6);
  timeline.set_group("two");
  timeline.set_origin(1'000);
  timeline.complete(first, 7, 9);
  timeline.complete(first, 70, 90);
  const auto spans = timeline.take_spans();
  ASSERT_EQ(spans.size(), 1);
  EXPECT_EQ(spans[0].kind, SpanKind::kCommunication);
  EXPECT_EQ(spans[0].name, "all-reduce of the gradient of fc.weight");
  EXPECT_EQ(spans[0].group, "one");
  EXPECT_EQ(spans[0].bytes, kBytes);
  EXPECT_EQ(spans[0].launched_ns, 5);
  expect_span(spans[0], 7, 9);
  timeline.complete(never, 7, 9);
  EXPECT_TRUE(timeline.take_spans().empty());
}

constexpr NetworkModel kTimelineLink = {.alpha_ns = 1'000'000, .beta_ns_per_byte = 10};

// A group on a slow link in real time. All ranks create the backends in the same order.
ProcessGroupPtr make_drawn_group(const RankContext& context,
                                 const std::shared_ptr<Timeline>& timeline) {
  const BackendPtr link = c10::make_intrusive<LimitedLink>(
      make_gloo_backend(context, std::chrono::seconds(10)), kTimelineLink);
  return make_process_group(c10::make_intrusive<TimelineBackend>(link, timeline),
                            store_for_next_backend(context));
}

std::int64_t lasts_at_least(c10d::OpType type) { return cost_ns(kTimelineLink, type, kBytes, 2); }

// A wait after the operation has completed, or only by its future, as in c10d::Reducer.
TEST(RealSpans, LastFromTheLaunchToTheCompletion) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const auto timeline = std::make_shared<Timeline>();
    const ProcessGroupPtr group = make_drawn_group(context, timeline);
    for (const bool by_future : {false, true}) {
      const at::Tensor tensor = traced_tensor();
      timeline->take_spans();
      const std::int64_t before = steady_ns();
      const WorkPtr work = all_reduce_async(tensor, group);
      const std::int64_t launched = steady_ns();
      if (by_future) {
        work->getFuture()->wait();
        timeline->settle();  // who waited may go on before its callbacks
      } else {
        work->wait();
      }
      const std::int64_t after = steady_ns();
      const auto spans = timeline->take_spans();
      const Span span = only(spans, "all-reduce of a tensor float32 [100]");
      EXPECT_GE(span.begin_ns, before);
      EXPECT_LE(span.begin_ns, launched);
      EXPECT_GE(span.end_ns - span.begin_ns, lasts_at_least(c10d::OpType::ALLREDUCE));
      EXPECT_LE(span.end_ns, after);
      EXPECT_EQ(span.launched_ns, span.begin_ns);
      EXPECT_EQ(span.bytes, kBytes);
      EXPECT_EQ(spans[0].name, "launch");
      EXPECT_GE(spans[0].begin_ns, before);
      EXPECT_LE(spans[0].end_ns, launched);
    }
  });
}

TEST(RealSpans, OfMessagesEndWhenSomebodyKnows) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const auto timeline = std::make_shared<Timeline>();
    const ProcessGroupPtr group = make_drawn_group(context, timeline);
    const int peer = 1 - context.rank;
    const at::Tensor outgoing = traced_tensor(), incoming = at::empty({kTimelineElements});
    const WorkPtr sending = send_async(outgoing, peer, group);
    recv(incoming, peer, group);
    while (!sending->isCompleted()) {
    }
    EXPECT_TRUE(incoming.eq(1).all().item<bool>());
    const auto spans = timeline->take_spans();
    for (const char* name : {"send", "recv"}) {
      const Span span = only(spans, std::string(name) + " of a tensor float32 [100]");
      EXPECT_GE(span.end_ns - span.begin_ns, lasts_at_least(c10d::OpType::SEND));
    }
  });
}

// On one machine all ranks count from the same instant, which is in the past when they learn it.
TEST(RealSpans, HaveACommonOrigin) {
  testing::expect_plain_ranks_pass({.world_size = 3}, [](RankContext& context) {
    const ProcessGroupPtr group = make_gloo_group(context);
    const std::int64_t before = steady_ns();
    const std::int64_t origin = agree_on_origin(group, placement_of(context).one_machine);
    EXPECT_GE(origin, before);
    EXPECT_LE(origin, steady_ns());
    const at::Tensor all = at::full({2}, origin, at::kLong);
    all[1] = -origin;
    all_reduce(all, group, ReduceOp::kMax);
    EXPECT_EQ(all[0].item<std::int64_t>(), -all[1].item<std::int64_t>());
  });
}

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
