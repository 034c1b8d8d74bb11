#include <ATen/ATen.h>

#include <limits>

#include "claims.h"
#include "ddp/libtorch_versions.h"
#include "numbers.h"
#include "support/compare.h"
#include "support/training_evidence.h"

// How much precision is lost.

namespace ddp::testing {

namespace {

// Bounds on rounding are not computed for larger tensors.
constexpr std::int64_t kMostRounded = 1 << 15;

// For every element, how far its sum may be from the exact one. Each addition rounds its result s
// by at most u |s|. The sum begins on rank `first`, and the ranks to its right add to it.
at::Tensor bound_of_sum(const TensorList& values, std::size_t first, double u) {
  at::Tensor sum = values[first];
  at::Tensor error = at::zeros_like(sum);
  for (std::size_t step = 1; step < values.size(); ++step) {
    sum = sum + values[(first + step) % values.size()];
    error = error + u * (sum.abs() + error);
  }
  return error;
}

// An average divides the sum, possibly by multiplying with the rounded reciprocal.
at::Tensor bound_of_average(const TensorList& values, std::size_t first, double u) {
  const auto size = static_cast<double>(values.size());
  const at::Tensor added = bound_of_sum(values, first, u) / size;
  const bool exact = (values.size() & (values.size() - 1)) == 0;
  return added + (exact ? 0 : 2 * u) * (accurate_sum(values).abs() / size + added);
}

// One chunk of the result. The chunk's number does not fix the rank on which its sum begins.
std::string rounded_chunk(const CallOfGroup& call, const at::Tensor& actual,
                          const TensorList& values, std::size_t number) {
  const double u = unit_of(call.dtype());
  const at::Tensor expected = accurate_sum(values) / (call.is_average() ? call.size() : 1);
  // The reference is rounded, too, and twice for an average; that of subnormal numbers is off by half
  // the smallest one.
  const double halves = (call.is_average() ? 1 : 0) + (call.dtype() == at::kDouble ? 1 : 0);
  const at::Tensor slack = expected.abs() * std::numeric_limits<double>::epsilon() +
                           halves / 2 * smallest_number(call.dtype());
  std::string text;
  for (std::size_t i = 1; i <= values.size(); ++i) {
    const std::size_t first = (number + i) % values.size();
    const at::Tensor bound =
        call.is_average() ? bound_of_average(values, first, u) : bound_of_sum(values, first, u);
    const std::string name =
        "chunk " + std::to_string(number) + ", compared with an exact one: off by more than " +
        std::to_string(call.size() - 1) + " additions" +
        (call.is_average() ? " and then a division" : "") + " in " + dtype_name(call.dtype()) +
        " may be" + (call.is_average() ? " (are terms divided before they are added?)" : "") +
        "; it";
    text = said(is_close({name, call.size()}, actual, expected, bound + slack));
    if (text.empty()) {
      break;
    }
  }
  return text;
}

}  // namespace

double unit_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon() / 2;
    case at::kFloat:
      return std::numeric_limits<float>::epsilon() / 2;
    case at::kHalf:
      return 0x1p-11;
    default:
      return 0x1p-8;  // bfloat16
  }
}

double smallest_number(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::denorm_min();
    case at::kFloat:
      return std::numeric_limits<float>::denorm_min();
    case at::kHalf:
      return 0x1p-24;
    default:
      return 0x1p-133;  // bfloat16
  }
}

TensorList inputs_of(const CallOfGroup& call, const Chunk& chunk) {
  const auto wide = at::isFloatingType(call.dtype()) ? at::kDouble : at::kLong;
  TensorList inputs;
  for (const CallOfRank& rank : call.ranks) {
    inputs.push_back(rank.input().narrow(0, chunk.begin, chunk.size).to(wide));
  }
  return inputs;
}

// The error of each addition is computed (Knuth's two-sum), and added at the end.
at::Tensor accurate_sum(const TensorList& values) {
  at::Tensor sum = at::zeros_like(values[0]);
  at::Tensor lost = at::zeros_like(sum);
  for (const at::Tensor& value : values) {
    const at::Tensor next = sum + value;
    const at::Tensor added = next - sum;
    lost = lost + (sum - (next - added)) + (value - added);
    sum = next;
  }
  return sum + lost;
}

std::string too_much_rounding(const CallOfGroup& call) {
  if (!is_sum(call) || !at::isFloatingType(call.dtype()) || call.values() == Values::kNotFinite ||
      call.elements() > kMostRounded) {
    return "";
  }
  const auto chunks = balanced_split(call.elements(), call.size());
  for (std::size_t number = 0; number < chunks.size(); ++number) {
    const Chunk& chunk = chunks[number];
    // Of an all-reduce all ranks have the same bits, or another claim says so.
    const CallOfRank& rank = call.ranks[call.function() == Function::kReduceScatter ? number : 0];
    const at::Tensor actual = rank.result().narrow(0, chunk.begin, chunk.size).to(at::kDouble);
    if (auto text = rounded_chunk(call, actual, inputs_of(call, chunk), number); !text.empty()) {
      return rank.what + ": " + text;
    }
  }
  return "";
}

}  // namespace ddp::testing
