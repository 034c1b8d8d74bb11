// Timelines: a span covers what happened, and viewers can open the file.
#include "ddp/simulation/timeline.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ddp/backends/limited_link.h"
#include "ddp/ranks/launch.h"
#include "harness/checks.h"
#include "support/ranks.h"

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

}  // namespace
}  // namespace ddp
