// Statistics agree with numpy's.
#include "ddp/meters/statistics.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ddp {
namespace {

// Expected values from numpy.percentile.
TEST(Statistics, PercentilesAreNumpys) {
  const std::vector<double> values = {15, 20, 35, 40, 50};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 15);
  EXPECT_DOUBLE_EQ(percentile(values, 40), 29);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 35);
  EXPECT_DOUBLE_EQ(percentile(values, 90), 46);
  EXPECT_DOUBLE_EQ(percentile(values, 99), 49.6);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 50);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 50), 2.5) << "order must not matter";
  EXPECT_DOUBLE_EQ(percentile({7}, 99), 7);
  EXPECT_THROW(percentile({}, 50), c10::ValueError);
  EXPECT_THROW(percentile(values, 101), c10::ValueError);
  EXPECT_THROW(percentile(values, std::nan("")), c10::ValueError);
}

TEST(Statistics, SummaryOfOneToHundred) {
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) {
    values.push_back(i);
  }
  const Summary summary = summarize(values);
  EXPECT_DOUBLE_EQ(summary.mean, 50.5);
  EXPECT_DOUBLE_EQ(summary.p50, 50.5);
  EXPECT_DOUBLE_EQ(summary.p90, 90.1);
  EXPECT_DOUBLE_EQ(summary.p95, 95.05);
  EXPECT_DOUBLE_EQ(summary.p99, 99.01);
  EXPECT_THROW(summarize({}), c10::ValueError);
}

TEST(Statistics, LapsAddUpToTheWhole) {
  Stopwatch whole, laps;
  double sum = laps.lap();
  sum += laps.lap();
  EXPECT_GE(sum, 0);
  EXPECT_LE(sum, whole.seconds());
}

}  // namespace
}  // namespace ddp
