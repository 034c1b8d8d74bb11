#include <ATen/ATen.h>

#include <iomanip>
#include <sstream>

#include "bodies.h"
#include "claims.h"
#include "ddp/meters/statistics.h"
#include "ddp/simulation/virtual_time.h"
#include "support/grading.h"
#include "support/real_time_report.h"
#include "support/training_claims.h"

// The extension: a report, worth no points, and only if the results are right.

namespace ddp::testing {

namespace {

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
    {.name = "pipelined_ring_beside_gloos_all_reduce",
     .points = 0,
     .hint = "An extension, worth no points: chunks in segments, so that adding one overlaps with "
             "the transfer of the next. How fast does it get?"},
    [] {
      judge(pipelined_bodies(),
            all_of({misuse_is_refused, in_each_call(wrong_sum), in_each_call(differing_bits),
                    in_each_call(wrong_messages)}));
      if (::testing::Test::HasFailure() || ::testing::Test::IsSkipped()) {
        return;
      }
      judge({pipelined_megabyte()}, report_virtual_speed);
      run_in_real_time([](ReportingRank& rank) {
        report_ratio(rank, 1, /*rounds=*/11);
        report_ratio(rank, 4, /*rounds=*/5);
        report_ratio(rank, 16, /*rounds=*/3);
      });
    }};

}  // namespace

}  // namespace ddp::testing
