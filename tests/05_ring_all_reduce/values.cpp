#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>

#include "claims.h"
#include "ddp/balanced_split.h"
#include "ddp/libtorch_versions.h"
#include "grader/compare.h"
#include "grader/training_evidence.h"

// What is in the tensors, and how exact a sum is.

namespace ddp::testing {

namespace {

using TensorList = std::vector<at::Tensor>;

bool is_sum(const CallOfGroup& call) { return call.function() != Function::kAllGather; }

// The largest relative error of one operation.
double unit_of(at::ScalarType dtype) { return epsilon_of(dtype) / 2; }

// The spacing of the smallest numbers: quotients there are off by more than a relative error.
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

// The ranks' parts of a chunk, in a type that rounds less: float64 or int64.
TensorList inputs_of(const CallOfGroup& call, const Chunk& chunk) {
  const auto wide = at::isFloatingType(call.dtype()) ? at::kDouble : at::kLong;
  TensorList inputs;
  for (const CallOfRank& rank : call.ranks) {
    inputs.push_back(rank.input().narrow(0, chunk.begin, chunk.size).to(wide));
  }
  return inputs;
}

// The sum in float64, as if it were rounded only once: the error of each addition is computed (Knuth's
// two-sum), and added at the end.
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

Finding compare(const CallOfGroup& call, const CallOfRank& rank, const Chunk& part,
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

Finding find_wrong_sum(const CallOfGroup& call) {
  const bool own = call.function() == Function::kReduceScatter;
  Wanted wanted;
  return on_each_rank(call, [&](const auto&, const CallOfRank& rank) -> Finding {
    const Chunk part = judged_part(call, rank.position);
    if (own || rank.position == 0) {
      wanted = wanted_of(call, part);
    } else if (same_bits(rank.result(), call.ranks[0].result())) {
      return "";
    }
    Finding found = compare(call, rank, part, wanted);
    return found.empty() || !own ? found
                                 : "chunk " + std::to_string(rank.position) +
                                       ", this rank's own: " + std::move(found);
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
Finding with_cause(const CallOfGroup& call, Finding found) {
  Finding cause = found.empty() ? Finding() : touched_in_flight(call);
  if (cause.empty()) {
    return found;
  }
  cause.text += ". So a result is wrong: " + found.text;
  cause.values = std::move(found.values);
  return cause;
}

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
Finding rounded_chunk(const CallOfGroup& call, const at::Tensor& actual, const TensorList& values,
                      std::size_t number) {
  const double u = unit_of(call.dtype());
  const at::Tensor expected = accurate_sum(values) / (call.is_average() ? call.size() : 1);
  // The reference is rounded, too, and twice for an average; that of subnormal numbers is off by half
  // the smallest one.
  const double halves = (call.is_average() ? 1 : 0) + (call.dtype() == at::kDouble ? 1 : 0);
  const at::Tensor slack = expected.abs() * std::numeric_limits<double>::epsilon() +
                           halves / 2 * smallest_number(call.dtype());
  Finding text;
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

Finding wrong_sum(const CallOfGroup& call) {
  // Several claims ask for it.
  static std::map<const CallOfGroup*, Finding> known;
  const auto found = known.find(&call);
  return found != known.end()
             ? found->second
             : known[&call] = is_sum(call) ? with_cause(call, find_wrong_sum(call)) : Finding();
}

Finding wrong_gather(const CallOfGroup& call) {
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

Finding differing_bits(const CallOfGroup& call) {
  if (!is_sum(call) || call.function() == Function::kReduceScatter) {
    return "";
  }
  return on_each_rank(call, [&](const auto&, const CallOfRank& rank) -> Finding {
    return same_bits(rank.result(), call.ranks[0].result())
               ? ""
               : "the result's bits differ between ranks: each element should be added up and "
                 "divided "
                 "once, on one rank, and copied to the others";
  });
}

Finding too_much_rounding(const CallOfGroup& call) {
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
    if (Finding found = rounded_chunk(call, actual, inputs_of(call, chunk), number);
        !found.empty()) {
      const Seen* const last = rank.events.empty() ? nullptr : rank.events.back();
      return rank.what + ": " + std::move(found).at(last, "wrong result");
    }
  }
  return "";
}

Finding changed_tensor(const CallOfGroup& call) {
  return on_each_rank(call, [](const auto&, const CallOfRank& rank) -> Finding {
    const at::Tensor changed = rank.tensor(kKeptBefore).ne(rank.tensor(kKeptAfter));
    if (const at::Tensor which = changed.nonzero(); which.numel() > 0) {
      return std::string(kKept.at(which[0].item<std::int64_t>())) +
             " changed. The result belongs into the memory that the tensor has, where views of it "
             "and optimizers look for it, and autograd must not notice: work on tensor.detach() "
             "under at::NoGradGuard";
    }
    const std::int64_t outside = rank.number(kWrittenOutside).value();
    return outside == 0 ? ""
                        : std::to_string(outside) +
                              " elements in memory that are not the tensor's "
                              "were written";
  });
}

}  // namespace ddp::testing
