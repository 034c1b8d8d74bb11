// Timelines: in virtual time every span follows from the formula; in real time it covers what
// happened, and viewers can open the file.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ddp/backends/limited_link.h"
#include "ddp/ranks/launch.h"
#include "ddp/simulation/compute_scope.h"
#include "ddp/simulation/timeline_backend.h"
#include "support/plain_ranks.h"

namespace ddp {
namespace {

using testing::Rank;

constexpr NetworkModel kNetwork{
    .alpha_ns = 1'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = 30};
constexpr std::int64_t kLaunch = 30;
constexpr std::int64_t kElements = 100;
constexpr std::int64_t kBytes = 4 * kElements;
constexpr std::int64_t kLasts = 2 * (1'000 + kBytes);  // 2 ranks: 2 alpha + S beta

at::Tensor payload() { return at::ones({kElements}); }

std::shared_ptr<Timeline> draw(Rank& rank) {
  auto timeline = std::make_shared<Timeline>();
  rank.clock()->draw_on(timeline);
  rank.network().draw_on(timeline);
  return timeline;
}

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

TEST(Timeline, KeepsAnOperationsGroupAndDropsTheIncomplete) {
  testing::in_child([] {
    Timeline timeline;
    const at::Tensor weight = payload().set_requires_grad(true);
    weight.mutable_grad() = payload();
    timeline.add_names({{"fc.weight", weight}});
    Operation operation;
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
  });
}

// Compute, then communicate: rank 1 is late, and rank 0's operation begins when rank 1 arrives.
TEST(VirtualSpans, OfAStepWithoutOverlap) {
  testing::run_worlds({2},
                      [](Rank& rank) {
                        const auto timeline = draw(rank);
                        const std::int64_t late = 500;
                        for (int step = 0; step < 2; ++step) {
                          const std::int64_t begin = rank.network().start_step();
                          timeline->take_spans();
                          timeline->set_origin(begin);
                          const std::int64_t computed = 2'000 + late * rank.rank();
                          rank.clock()->compute(computed, "backward");
                          all_reduce(payload(), rank.group());
                          all_reduce(payload(), rank.group());
                          const std::int64_t end = rank.network().step_end() - begin;

                          const std::int64_t first = 2'000 + late + kLaunch;
                          const std::int64_t second = first + kLasts + kLaunch;
                          EXPECT_EQ(end, second + kLasts);
                          const auto spans = timeline->take_spans();
                          ASSERT_EQ(spans.size(), 5);
                          expect_span(spans[0], 0, computed);
                          expect_span(spans[1], computed, computed + kLaunch);
                          EXPECT_EQ(spans[1].name, "launch");
                          expect_span(spans[2], first, first + kLasts);
                          EXPECT_EQ(spans[2].launched_ns, computed + kLaunch);
                          EXPECT_EQ(spans[2].name, "all-reduce of a tensor float32 [100]");
                          expect_span(spans[3], second - kLaunch, second);
                          expect_span(spans[4], second, second + kLasts);
                          EXPECT_EQ(spans[4].launched_ns, second);
                        }
                      },
                      {.network = kNetwork});
}

// Launched while computing: the second operation waits for the network, the third finds it idle.
// The last one is waited for only by its future.
TEST(VirtualSpans, OfAStepWithOverlap) {
  testing::run_worlds(
      {2},
      [](Rank& rank) {
        const auto timeline = draw(rank);
        timeline->set_origin(rank.network().start_step());
        const std::vector<at::Tensor> tensors = {payload(), payload(), payload()};
        std::vector<WorkPtr> works;
        std::vector<std::int64_t> launched;
        std::int64_t now = 0;
        for (const std::int64_t compute : {std::int64_t{100}, std::int64_t{200}, 3 * kLasts}) {
          rank.clock()->compute(compute, "backward");
          works.push_back(all_reduce_async(tensors[works.size()], rank.group()));
          launched.push_back(now += compute + kLaunch);
        }
        works[0]->wait();
        works[1]->wait();
        works[2]->getFuture()->wait();
        rank.network().start_step();  // which also ends a step

        auto spans = timeline->take_spans();
        std::erase_if(spans, [](const Span& s) { return s.kind != SpanKind::kCommunication; });
        ASSERT_EQ(spans.size(), 3);
        expect_span(spans[0], launched[0], launched[0] + kLasts);
        expect_span(spans[1], launched[0] + kLasts, launched[0] + 2 * kLasts);
        expect_span(spans[2], launched[2], launched[2] + kLasts);
        for (std::size_t i = 0; i < spans.size(); ++i) {
          EXPECT_EQ(spans[i].launched_ns, launched[i]);
        }
      },
      {.network = kNetwork});
}

TEST(VirtualSpans, OfMessages) {
  testing::run_worlds(
      {2},
      [](Rank& rank) {
        const auto timeline = draw(rank);
        timeline->set_origin(rank.network().start_step());
        rank.clock()->advance(700 * rank.rank());
        const at::Tensor tensor = payload();
        rank.rank() == 0 ? send(tensor, 1, rank.group()) : recv(tensor, 0, rank.group());
        rank.network().step_end();
        const Span span =
            only(timeline->take_spans(),
                 std::string(rank.rank() == 0 ? "send" : "recv") + " of a tensor float32 [100]");
        expect_span(span, 700 + kLaunch, 700 + kLaunch + 1'000 + 2 * kBytes);
      },
      {.network = kNetwork});
}

// A layer's backward is drawn when its gradients arrive, and with its name.
TEST(VirtualSpans, OfLayersAndScopes) {
  testing::in_child([] {
    const auto timeline = std::make_shared<Timeline>();
    const auto clock = std::make_shared<VirtualClock>();
    clock->draw_on(timeline);
    at::Tensor x = payload().set_requires_grad(true);
    {
      const ComputeScope forward(timeline, "forward", clock);
      x = simulated_compute(x * 2, clock, 10, 100, "first");
      x = simulated_compute(x * 3, clock, 20, 200, "second");
    }
    x.sum().backward();
    const auto spans = timeline->take_spans();
    ASSERT_EQ(spans.size(), 5);
    expect_span(only(spans, "forward first"), 0, 10);
    expect_span(only(spans, "forward second"), 10, 30);
    expect_span(only(spans, "forward"), 0, 30);
    expect_span(only(spans, "backward second"), 30, 230);
    expect_span(only(spans, "backward first"), 230, 330);

    const ComputeScope not_drawn(nullptr, "nothing");
  });
}

constexpr NetworkModel kSlow = {.alpha_ns = 1'000'000, .beta_ns_per_byte = 10};

// A group on a slow link in real time. All ranks create the backends in the same order.
ProcessGroupPtr make_drawn_group(const RankContext& context,
                                 const std::shared_ptr<Timeline>& timeline) {
  const BackendPtr link =
      c10::make_intrusive<LimitedLink>(make_gloo_backend(context, std::chrono::seconds(10)), kSlow);
  return make_process_group(c10::make_intrusive<TimelineBackend>(link, timeline),
                            store_for_next_backend(context));
}

std::int64_t lasts_at_least(c10d::OpType type) { return cost_ns(kSlow, type, kBytes, 2); }

// A wait after the operation has completed, or only by its future, as in c10d::Reducer.
TEST(RealSpans, LastFromTheLaunchToTheCompletion) {
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const auto timeline = std::make_shared<Timeline>();
    const ProcessGroupPtr group = make_drawn_group(context, timeline);
    for (const bool by_future : {false, true}) {
      const at::Tensor tensor = payload();
      timeline->take_spans();
      const std::int64_t before = steady_ns();
      const WorkPtr work = all_reduce_async(tensor, group);
      const std::int64_t launched = steady_ns();
      if (by_future) {
        work->getFuture()->wait();
      } else {
        work->wait();
      }
      timeline->settle();
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
    const at::Tensor outgoing = payload(), incoming = at::empty({kElements});
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
