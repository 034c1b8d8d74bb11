// What is guessed of a norm that is wrong.
#include "grader/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/checks.h"

namespace ddp::testing {
namespace {

std::string said_of(double norm) { return wrong_norm(norm, {9, 16}, 1, 1e-6, "these"); }

TEST(Norm, SaysWhatElseItMayBe) {
  EXPECT_EQ(said_of(5), "");
  expect_contains(said_of(4), "returned 4; the norm of these is 5: that of this rank's shards");
  expect_contains(said_of(7), "the ranks' norms were added, not their squares");
  expect_contains(said_of(10), "of sums over the ranks, not of means");
  expect_contains(said_of(1.7e38), "returned 1.7e+38");
  expect_contains(said_of(1.7e38), "was the padding never written?");
  expect_contains(said_of(5.01), "was it computed in a dtype of few digits?");
  expect_contains(said_of(std::numeric_limits<double>::infinity()), "too large for the gradients'");
  EXPECT_NE(said_of(std::nan("")), "");
}

}  // namespace
}  // namespace ddp::testing
