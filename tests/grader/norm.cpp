#include "grader/norm.h"

#include <cmath>
#include <numeric>
#include <sstream>

namespace ddp::testing {

namespace {

// Memory that nobody has written to holds numbers of this size in a graded run.
constexpr double kNeverWritten = 1e37;

// What the norm may be instead of `expected`.
std::string guess(double norm, double expected, const std::vector<double>& squares,
                  std::size_t place) {
  const auto about = [&](double other) { return std::abs(norm - other) <= 1e-4 * other; };
  const double ranks = static_cast<double>(squares.size());
  double sum_of_norms = 0;
  for (const double own : squares) {
    sum_of_norms += std::sqrt(own);
  }
  return std::isinf(norm)                      ? ": are squares too large for the gradients' dtype?"
         : std::isnan(norm)                    ? ""
         : norm >= kNeverWritten               ? ": was the padding never written?"
         : about(std::sqrt(squares.at(place))) ? ": that of this rank's shards alone"
         : about(sum_of_norms)                 ? ": the ranks' norms were added, not their squares"
         : about(expected * expected)          ? ": the squares' sum, without a root"
         : about(expected * ranks)             ? ": of sums over the ranks, not of means"
         : std::abs(norm - expected) <= 0.02 * expected
             ? ": was it computed in a dtype of few digits?"
             : "";
}

}  // namespace

std::string wrong_norm(double norm, const std::vector<double>& squares, std::size_t place,
                       double tolerance, const std::string& whose) {
  const double expected = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  const bool right = norm == expected || (std::isnan(norm) && std::isnan(expected)) ||
                     std::abs(norm - expected) <= tolerance * expected;
  std::ostringstream text;
  text.precision(9);
  text << "clip_grad_norm() returned " << norm << "; the norm of " << whose << " is " << expected
       << guess(norm, expected, squares, place);
  return right ? "" : text.str();
}

}  // namespace ddp::testing
