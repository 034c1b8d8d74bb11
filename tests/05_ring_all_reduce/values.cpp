#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>

#include "claims.h"
#include "ddp/balanced_split.h"
#include "numbers.h"
#include "support/compare.h"
#include "support/training_evidence.h"

// What is in the tensors.

namespace ddp::testing {

namespace {

at::Tensor plain_sum(const TensorList& values) {
  at::Tensor sum = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    sum = sum + values[i];
  }
  return sum;
}

// What a chunk should be, and how far each element may be off.
struct Wanted {
  at::Tensor values;
  double tolerance = 0;
};

Wanted wanted_of(const CallOfGroup& call, const Chunk& part) {
  const TensorList inputs = inputs_of(call, part);
  const at::Tensor sum = call.dtype() == at::kDouble && call.values() == Values::kPlain
                             ? accurate_sum(inputs)
                             : plain_sum(inputs);
  if (!at::isFloatingType(call.dtype())) {
    return {sum.to(call.dtype())};  // sums that are too large wrap around
  }
  double largest = 0;
  for (const at::Tensor& input : inputs) {
    const at::Tensor finite =
        call.values() == Values::kNotFinite ? input.nan_to_num(0, 0, 0) : input;
    largest = input.numel() == 0 ? 0 : std::max(largest, finite.abs().max().item<double>());
  }
  // N-1 additions in whatever order, and a division.
  const double size = call.size();
  const double bound = (size + 1) * unit_of(call.dtype()) * size * largest;
  return call.is_average()
             ? Wanted{sum / size, bound / size + 2 * size * smallest_number(call.dtype())}
             : Wanted{sum, bound};
}

// The elements that must be the result: all, or the rank's own.
Chunk judged_part(const CallOfGroup& call, int position) {
  return call.function() == Function::kReduceScatter
             ? balanced_split(call.elements(), call.size())[position]
             : Chunk{0, call.elements()};
}

std::string compare(const CallOfGroup& call, const CallOfRank& rank, const Chunk& part,
                    const Wanted& wanted) {
  const Subject subject{call.is_average() ? "the average" : "the sum", call.size(),
                        rank.input().narrow(0, part.begin, part.size)};
  const at::Tensor actual = rank.result().narrow(0, part.begin, part.size);
  if (!at::isFloatingType(call.dtype())) {
    return said(is_bitwise_equal(subject, actual, wanted.values));
  }
  const at::Tensor wide = actual.to(at::kDouble);
  if (call.values() != Values::kNotFinite) {
    return said(is_close(subject, wide, wanted.values, wanted.tolerance));
  }
  const at::Tensor infinite = wanted.values.isfinite().logical_not();
  const at::Tensor same = wide.eq(wanted.values)
                              .logical_or(wide.isnan().logical_and(wanted.values.isnan()))
                              .logical_and(infinite);
  return said(is_close(subject, wide.masked_fill(same, 0), wanted.values.masked_fill(same, 0),
                       wanted.tolerance));
}

std::string find_wrong_sum(const CallOfGroup& call) {
  const bool own = call.function() == Function::kReduceScatter;
  Wanted wanted;
  return on_each_rank(call, [&](const auto&, const CallOfRank& rank) -> std::string {
    const Chunk part = judged_part(call, rank.position);
    if (own || rank.position == 0) {
      wanted = wanted_of(call, part);
    } else if (same_bits(rank.result(), call.ranks[0].result())) {
      return "";
    }
    const std::string text = compare(call, rank, part, wanted);
    return text.empty() || !own
               ? text
               : "chunk " + std::to_string(rank.position) + ", this rank's own: " + text;
  });
}

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

// Wrong values that come from a tensor in flight say so.
std::string with_cause(const CallOfGroup& call, const std::string& text) {
  const std::string cause = text.empty() ? "" : touched_in_flight(call);
  return cause.empty() ? text : cause + ". So a result is wrong: " + text;
}

}  // namespace

std::string wrong_sum(const CallOfGroup& call) {
  // Several claims ask for it.
  static std::map<const CallOfGroup*, std::string> known;
  const auto found = known.find(&call);
  return found != known.end()
             ? found->second
             : known[&call] = is_sum(call) ? with_cause(call, find_wrong_sum(call)) : "";
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
  return with_cause(call, on_each_rank(call, [&](const auto&, const CallOfRank& rank) {
                      return said(is_bitwise_equal(
                          {"the tensor (each chunk r is to be rank r's in every bit; shown "
                           "as integers of these bits)",
                           call.size()},
                          as_bits(rank.result()), as_bits(at::cat(chunks))));
                    }));
}

std::string differing_bits(const CallOfGroup& call) {
  if (!is_sum(call) || call.function() == Function::kReduceScatter) {
    return "";
  }
  return on_each_rank(call, [&](const auto&, const CallOfRank& rank) -> std::string {
    return same_bits(rank.result(), call.ranks[0].result())
               ? ""
               : "the result has not the same bits on all ranks: each element should be added up "
                 "and divided once, on one rank, and be copied to the others";
  });
}

std::string changed_tensor(const CallOfGroup& call) {
  return on_each_rank(call, [](const auto&, const CallOfRank& rank) -> std::string {
    const at::Tensor changed = rank.value.at("kept before").ne(rank.value.at("kept after"));
    if (const at::Tensor which = changed.nonzero(); which.numel() > 0) {
      return std::string(kKept[which[0].item<std::int64_t>()]) +
             " changed. The result belongs into the memory that the tensor has, where views of it "
             "and optimizers look for it, and autograd must not notice: work on tensor.detach() "
             "under at::NoGradGuard";
    }
    const std::int64_t outside = rank.facts.at("written outside");
    return outside == 0 ? ""
                        : std::to_string(outside) +
                              " elements in memory that are not the tensor's "
                              "were written";
  });
}

}  // namespace ddp::testing
