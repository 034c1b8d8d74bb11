#include <ATen/ATen.h>

#include <iomanip>
#include <sstream>

#include "claims.h"
#include "ddp/meters/statistics.h"
#include "ddp/referee/client.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/calls.h"
#include "grader/grading.h"
#include "grader/real_time_report.h"
#include "grader/training_claims.h"
#include "scenarios.h"

// The extension: a report, worth no points, and only if the results are right.

namespace ddp::testing {

namespace {

constexpr const char* kPipeliningTest = "pipelined_ring_beside_gloos_all_reduce";

Scenario of_calls(const std::string& name, int ranks, const std::vector<RingCall>& calls) {
  return calling(to_string(Function::kPipelined) + ", " + name, {.ranks = ranks}, calls,
                 kPipeliningTest, with_ranks({}, ranks));
}

Scenario pipelined(int ranks) {
  constexpr std::int64_t kWhole = std::int64_t{1} << 40;  // no chunk is larger than one segment
  std::vector<RingCall> calls;
  const auto add = [&](std::int64_t segment_bytes, RingCall call) {
    call.function = Function::kPipelined;
    call.segment_bytes = segment_bytes;
    calls.push_back(call);
  };
  for (const std::int64_t segment_bytes : {std::int64_t{1}, std::int64_t{12}, kWhole}) {
    for (const std::int64_t elements : {0, 1, 11}) {
      add(segment_bytes, {.elements = elements});
    }
  }
  add(256, {.elements = 1001, .dtype = at::kLong});
  add(100, {.elements = 999, .dtype = at::kBFloat16, .op = ReduceOp::kAverage});
  add(300, {.elements = 2051, .op = ReduceOp::kAverage});
  return of_calls("the pipelined ring, " + on_ranks(ranks), ranks, calls);
}

Scenario wrong_segments() {
  return {"the pipelined ring, segments of no size",
          {},
          [](Client& client) {
            const ProcessGroupPtr group = make_group(client.shared_from_this());
            for (const std::int64_t bytes : {0, -1}) {
              attempt(client, "segment_bytes = " + std::to_string(bytes), [&] {
                pipelined_ring_all_reduce(at::ones({6}), group, {.segment_bytes = bytes});
              });
            }
          },
          kPipeliningTest};
}

// One call, of a megabyte by 4 ranks, with the segments that it has by default.
Scenario a_megabyte() {
  const RingCall call{.function = Function::kPipelined,
                      .elements = 1 << 18,
                      .segment_bytes = PipelinedRingOptions().segment_bytes};
  return of_calls("a megabyte on 4 ranks", 4, {call});
}

// Interleaved, so that both are measured under the same conditions.
void report_ratio(ReportingRank& rank, std::int64_t mebibytes, int rounds) {
  const ProcessGroupPtr& group = rank.group();
  const at::Tensor tensor = at::ones({mebibytes << 18});
  std::vector<double> ring;
  std::vector<double> gloo;
  for (int round = 0; round <= rounds; ++round) {
    barrier(group);
    Stopwatch watch;
    pipelined_ring_all_reduce(tensor, group);
    ring.push_back(watch.lap());
    barrier(group);
    watch.lap();
    all_reduce(tensor, group);
    gloo.push_back(watch.lap());
    tensor.fill_(1);
  }
  ring.erase(ring.begin());  // the first repetition was the warm-up
  gloo.erase(gloo.begin());
  if (rank.rank() == 0) {
    std::ostringstream text;
    text << "pipelined ring on " << group->getSize() << " ranks, speed relative to "
         << "Gloo's all-reduce at " << mebibytes << " MiB: " << std::fixed << std::setprecision(2)
         << percentile(gloo, 50) / percentile(ring, 50);
    rank.report_measured(text.str());
  }
}

// The same in every run and on every machine, so it can be compared with others'.
std::string report_virtual_speed(const Evidence& evidence) {
  const NetworkModel network{.alpha_ns = 10'000, .beta_ns_per_byte = 0.8};
  const ComputeCost nothing = [](const Seen&, int) { return 0; };
  const CallOfGroup& call = calls_in(evidence).at(0);
  const auto ring =
      cost_ns(network, c10d::OpType::ALLREDUCE, call.ranks[0].input().nbytes(), call.size());
  const auto took = VirtualTime(evidence, network, nothing).step_ns(call.step);
  std::ostringstream text;
  text << "leaderboard: pipelined ring, a megabyte on 4 simulated ranks, speed relative to the "
       << "ring's: " << std::fixed << std::setprecision(3)
       << static_cast<double>(ring) / static_cast<double>(took);
  note_measured(text.str());
  return "";
}

const GradedTest kPipelined{
    {.name = kPipeliningTest,
     .points = 0,
     .hint = "An extension, worth no points: chunks in segments, so that adding one overlaps with "
             "the transfer of the next. How fast does it get?",
     .more = "First make it right with one segment a chunk: that is the plain ring. Then ask how "
             "many recvs may be posted ahead, in which one order all ranks send their messages, "
             "and when a place may be received into from which something is still being sent."},
    [] {
      judge(joined({for_ranks({2, 1, 3, 4}, pipelined), {wrong_segments()}}),
            all_of({misuse_is_refused, in_each_call(wrong_sum), in_each_call(differing_bits),
                    in_each_call(wrong_messages)}));
      if (::testing::Test::HasFailure() || ::testing::Test::IsSkipped()) {
        return;
      }
      judge({a_megabyte()}, report_virtual_speed);
      run_in_real_time([](ReportingRank& rank) {
        report_ratio(rank, 1, /*rounds=*/11);
        report_ratio(rank, 4, /*rounds=*/5);
        report_ratio(rank, 16, /*rounds=*/3);
      });
    }};

}  // namespace

}  // namespace ddp::testing
