#pragma once

#include <string>
#include <vector>

#include "cases.h"
#include "ddp/referee/evidence.h"

// What must be true of a case: what its ranks launch, and when, by the header; and of values. Each claim
// returns what is wrong, or nothing.

namespace ddp::testing {

/// Something that a rank does, of a unit.
struct Deed {
  enum class Kind { kGather, kForward, kBackward, kReduce } kind = Kind::kGather;
  std::size_t unit = 0;
  const Seen* seen = nullptr;  // null where it is expected

  bool operator==(const Deed& other) const { return kind == other.kind && unit == other.unit; }
};
using Deeds = std::vector<Deed>;

/// What every rank of a case does in a step, in order.
Deeds expected_deeds(const Case& one, int step);

/// How often a rank reduced a unit's gradient in a step, and how often it is due.
std::pair<std::int64_t, std::int64_t> reductions_of(const Evidence& evidence, int rank, int step,
                                                    std::size_t unit);

/// Each use is gathered in forward and again in backward, with exactly the padded bytes.
Finding each_use_is_gathered(const Evidence& evidence);

/// Each unit's gradient is reduced once, with exactly the padded bytes.
Finding each_gradient_is_reduced(const Evidence& evidence);

/// Every rank of several has gathered something: who does nothing holds nothing, and touches nothing.
Finding units_are_gathered(const Evidence& evidence);

/// A step launches these alone, and for the norm one all-reduce of a number.
Finding nothing_else_is_launched(const Evidence& evidence);

/// All-gathers are launched in the order, and at the moments, that the header says.
Finding gathers_have_their_moment(const Evidence& evidence);

/// So are reduce-scatters: before anything else that is launched after the gradient was complete.
Finding reduce_scatters_have_their_moment(const Evidence& evidence);

/// One is under way at most.
Finding one_is_reduced_at_a_time(const Evidence& evidence);

/// Inside NoSync nothing is reduced.
Finding no_sync_reduces_nothing(const Evidence& evidence);

/// After construction a rank has its chunk of rank 0's values, bit for bit, in flat leaves.
Finding shards_are_rank_0s(const Evidence& evidence);

/// Outputs, gradients and parameters are the unsharded model's.
Finding values_are_the_unsharded_models(const Evidence& evidence);

/// What clip_grad_norm() returns is the norm of all units' gradients.
Finding norm_is_that_of_all_units(const Evidence& evidence);

}  // namespace ddp::testing
