#pragma once

#include <string>
#include <vector>

#include "cases.h"
#include "ddp/referee/evidence.h"

// What ranks launch, and when, by the header.

namespace ddp::testing {

/// Something that a rank does, of a unit.
struct Deed {
  enum class Kind { kGather, kForward, kBackward, kReduce } kind = Kind::kGather;
  std::size_t unit = 0;
  const Seen* seen = nullptr;  // null where it is expected

  bool operator==(const Deed& other) const { return kind == other.kind && unit == other.unit; }
};
using Deeds = std::vector<Deed>;

/// "the all-gather of unit 2".
std::string name_of(const Deed& deed);

/// What every rank of a case does in a step, in order.
Deeds expected_deeds(const Case& one, int step);

/// Each use is gathered in forward and again in backward, with exactly the padded bytes.
std::string each_use_is_gathered(const Evidence& evidence);

/// Each unit's gradient is reduced once, with exactly the padded bytes.
std::string each_gradient_is_reduced(const Evidence& evidence);

/// Every rank of several has gathered something: who does nothing holds nothing, and touches nothing.
std::string units_are_gathered(const Evidence& evidence);

/// A step launches these alone, and for the norm one all-reduce of a number.
std::string nothing_else_is_launched(const Evidence& evidence);

/// All-gathers are launched in the order, and at the moments, that the header says.
std::string gathers_have_their_moment(const Evidence& evidence);

/// So are reduce-scatters: before anything else that is launched after the gradient was complete.
std::string reduce_scatters_have_their_moment(const Evidence& evidence);

/// Inside NoSync nothing is reduced.
std::string no_sync_reduces_nothing(const Evidence& evidence);

}  // namespace ddp::testing
