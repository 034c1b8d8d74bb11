#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "claims.h"
#include "ddp/balanced_split.h"
#include "support/claim_tools.h"
#include "support/compare.h"

// What is in the tensors.

namespace ddp::testing {

namespace {

using TensorList = std::vector<at::Tensor>;

// Of the relative error of one operation.
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

// The ranks' parts of a chunk, or of the whole tensor, in a type that rounds less.
TensorList inputs_of(const CallOfGroup& call, const Chunk& chunk) {
  const auto wide = at::isFloatingType(call.dtype()) ? at::kDouble : at::kLong;
  TensorList inputs;
  for (const CallOfRank& rank : call.ranks) {
    inputs.push_back(rank.input().narrow(0, chunk.begin, chunk.size).to(wide));
  }
  return inputs;
}

at::Tensor plain_sum(const TensorList& values) {
  at::Tensor sum = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    sum = sum + values[i];
  }
  return sum;
}

// The sum in float64, as if it were rounded only once: the error of each addition is computed
// (Knuth's two-sum), and added at the end. Where that is no number, the plain sum.
at::Tensor accurate_sum(const TensorList& values) {
  at::Tensor sum = at::zeros_like(values[0]);
  at::Tensor lost = at::zeros_like(sum);
  for (const at::Tensor& value : values) {
    const at::Tensor next = sum + value;
    const at::Tensor added = next - sum;
    lost = lost + (sum - (next - added)) + (value - added);
    sum = next;
  }
  const at::Tensor accurate = sum + lost;
  return at::where(accurate.isfinite(), accurate, plain_sum(values));
}

// The elements that must be the result: all, or the rank's own.
Chunk judged_part(const CallOfGroup& call, int position) {
  return call.function() == Function::kReduceScatter
             ? balanced_split(call.elements(), call.size())[position]
             : Chunk{0, call.elements()};
}

std::string wrong_integers(const CallOfGroup& call, const CallOfRank& rank, const Chunk& part) {
  // Sums that are too large wrap around.
  const at::Tensor expected = plain_sum(inputs_of(call, part)).to(call.dtype());
  return said(
      is_bitwise_equal({"the sum", call.size(), rank.input().narrow(0, part.begin, part.size)},
                       rank.result().narrow(0, part.begin, part.size), expected));
}

// Off by some times the error that the ring may make, with which order ever.
std::string wrong_numbers(const CallOfGroup& call, const CallOfRank& rank, const Chunk& part) {
  constexpr double kTimes = 4;
  const TensorList inputs = inputs_of(call, part);
  const double divisor = call.is_average() ? call.size() : 1;
  at::Tensor expected = accurate_sum(inputs) / divisor;
  at::Tensor magnitude = at::zeros_like(expected);
  for (const at::Tensor& input : inputs) {
    magnitude += input.abs().nan_to_num(0, 0, 0) / divisor;
  }
  at::Tensor actual = rank.result().narrow(0, part.begin, part.size).to(at::kDouble);
  const at::Tensor same =
      actual.eq(expected).logical_or(actual.isnan().logical_and(expected.isnan()));
  const at::Tensor settled = expected.isfinite().logical_not().logical_and(same);
  const double slack = call.is_average() ? 2 * call.size() * smallest_number(call.dtype()) : 0;
  return said(is_close({call.is_average() ? "the average" : "the sum", call.size(),
                        rank.input().narrow(0, part.begin, part.size)},
                       actual.masked_fill(settled, 0), expected.masked_fill(settled, 0),
                       kTimes * call.size() * unit_of(call.dtype()) * magnitude + slack));
}

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

// An average divides once, possibly by multiplying with the rounded reciprocal; or every rank
// divides its own values before they are added.
at::Tensor bound_of_average(const TensorList& values, std::size_t first, double u) {
  const auto size = static_cast<double>(values.size());
  at::Tensor magnitude = at::zeros_like(values[0]);
  for (const at::Tensor& value : values) {
    magnitude = magnitude + value.abs() / size;
  }
  const at::Tensor added = bound_of_sum(values, first, u) / size;
  const bool exact = (values.size() & (values.size() - 1)) == 0;
  return added + (exact ? 0 : 2 * u) * (magnitude + added);
}

// One chunk of the result. The chunk's number does not fix the rank on which its sum begins.
std::string rounded_chunk(const CallOfGroup& call, const at::Tensor& actual,
                          const TensorList& values, std::size_t number) {
  const double u = unit_of(call.dtype());
  const at::Tensor expected = accurate_sum(values) / (call.is_average() ? call.size() : 1);
  // The reference is rounded, too, and twice for an average.
  const at::Tensor slack = expected.abs() * std::numeric_limits<double>::epsilon() +
                           (call.is_average() ? call.size() * smallest_number(call.dtype()) : 0);
  std::string text;
  for (std::size_t i = 1; i <= values.size(); ++i) {
    const std::size_t first = (number + i) % values.size();
    const at::Tensor bound =
        call.is_average() ? bound_of_average(values, first, u) : bound_of_sum(values, first, u);
    const std::string name = "chunk " + std::to_string(number) +
                             ", compared with an exact one: off by more than " +
                             std::to_string(call.size() - 1) + " additions" +
                             (call.is_average() ? " and a division" : "") + " in " +
                             c10::getDtypeNames(call.dtype()).first + " may be; it";
    text = said(is_close({name, call.size()}, actual, expected, bound + slack));
    if (text.empty()) {
      break;
    }
  }
  return text;
}

bool is_sum(const CallOfGroup& call) { return call.function() != Function::kAllGather; }

// Integers of the same size, which compare and show every bit, even those of a NaN.
at::Tensor as_bits(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return tensor.view(at::kByte);
    case 2:
      return tensor.view(at::kShort);
    case 4:
      return tensor.view(at::kInt);
    default:
      return tensor.view(at::kLong);
  }
}

}  // namespace

std::string wrong_sum(const CallOfGroup& call) {
  return !is_sum(call) ? "" : on_each_rank(call, [](const auto& all, const CallOfRank& rank) {
    const Chunk part = judged_part(all, rank.position);
    const std::string text = at::isFloatingType(all.dtype()) ? wrong_numbers(all, rank, part)
                                                             : wrong_integers(all, rank, part);
    const bool own = all.function() == Function::kReduceScatter;
    return text.empty() || !own
               ? text
               : "chunk " + std::to_string(rank.position) + ", this rank's own: " + text;
  });
}

std::string wrong_gather(const CallOfGroup& call) {
  if (call.function() != Function::kAllGather) {
    return "";
  }
  TensorList chunks;
  for (const CallOfRank& rank : call.ranks) {
    const Chunk chunk = balanced_split(call.elements(), call.size())[rank.position];
    chunks.push_back(rank.input().narrow(0, chunk.begin, chunk.size));
  }
  return on_each_rank(call, [&](const auto&, const CallOfRank& rank) {
    return said(is_bitwise_equal({"the tensor (each chunk r is to be rank r's in every bit; shown "
                                  "as integers of these bits)",
                                  call.size()},
                                 as_bits(rank.result()), as_bits(at::cat(chunks))));
  });
}

std::string differing_bits(const CallOfGroup& call) {
  if (!is_sum(call) || call.function() == Function::kReduceScatter || !wrong_sum(call).empty()) {
    return "";
  }
  return on_each_rank(call, [](const auto& all, const CallOfRank& rank) -> std::string {
    const at::Tensor first = as_bits(all.ranks[0].result());
    const auto differing = as_bits(rank.result()).ne(first).sum().template item<std::int64_t>();
    return differing == 0
               ? ""
               : std::to_string(differing) +
                     " elements have not the same bits on all "
                     "ranks: each should be added up and divided once, on one rank, and be "
                     "copied to the others";
  });
}

std::string too_much_rounding(const CallOfGroup& call) {
  if (!is_sum(call) || !at::isFloatingType(call.dtype()) || call.values() == Values::kNotFinite ||
      !wrong_sum(call).empty()) {
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

std::string changed_tensor(const CallOfGroup& call) {
  return on_each_rank(call, [](const auto&, const CallOfRank& rank) -> std::string {
    for (const auto& [property, values] : rank.kept) {
      if (values.first != values.second) {
        return property +
               " changed. The result belongs into the memory that the tensor has, where "
               "views of it and optimizers look for it, and autograd must not notice: work on "
               "tensor.detach() under at::NoGradGuard";
      }
    }
    const std::int64_t outside = rank.facts.at("written outside");
    return outside == 0 ? ""
                        : std::to_string(outside) +
                              " elements in memory that are not the tensor's "
                              "were written";
  });
}

}  // namespace ddp::testing
