#include "support/limited_link_report.h"

#include <gtest/gtest.h>

namespace ddp::testing {

void run_on_limited_link(const NetworkModel& network, const std::function<void(Rank&)>& report) {
  if (!settings().device.is_cpu()) {
    GTEST_SKIP() << "the rate-limited link takes CPU tensors only";
  }
  RankOptions options;
  options.network = network;
  options.real_time = true;
  run_ranks(options, report);
}

}  // namespace ddp::testing
