#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "grader/training_evidence.h"

// Which layers share a bucket, by the plan that ranks have told, and what they launch for it.

namespace ddp::testing {

/// What a factory tells of a Training: the plan, see as_tensor(), and whether hooks launch.
constexpr ValueKey kBucketPlan{"plan"}, kWithOverlap{"overlap"}, kWithoutOverlap{"no overlap"};

/// A bucket's members, as indices in the list of parameters.
using Plan = std::vector<std::vector<std::size_t>>;

/// A plan as a tensor, in which -1 ends a bucket.
at::Tensor as_tensor(const Plan& plan);
Plan as_plan(const at::Tensor& numbers);

/// A bucket as its members' layers.
struct Bucket {
  std::vector<std::int64_t> layers;
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::int64_t elements = 0;

  /// Of that many elements, or of all.
  std::int64_t bytes(std::int64_t of) const;
  std::int64_t bytes() const { return bytes(elements); }
  /// The elements of one of `ranks` equal parts, the last of which is padded.
  std::int64_t chunk(std::size_t ranks) const;
};
using Buckets = std::vector<Bucket>;

/// The rank's buckets, in plan order; none without a plan. Indices beyond the list are left out.
Buckets buckets_of(const TrainingOfRank& training);
/// Those that have elements.
Buckets full_buckets_of(const TrainingOfRank& training);

std::vector<std::vector<std::int64_t>> layers_of(const Buckets& buckets);

/// A bucket is launched with its last gradient, when it is its turn. `what` ("bucket 0 of 2, of
/// layer 1, ") `began` ("was launched") before or later; `bucket` ("it") was complete before.
Finding out_of_turn(const Turn& turn, const Seen& launch, const std::string& what,
                    const std::string& began, const std::string& bucket);

/// finish() launches all that are left of a rank's `launches`, and then waits.
Finding awaited_before_the_last(const Evidence& evidence, int rank, const Events& launches);

/// Nothing of a step is launched before finish(), nor while anything is under way: then `how` says
/// how operations follow each other.
Finding not_one_by_one(const Evidence& evidence, int rank, const TrainingStep& step,
                       const char* how);

}  // namespace ddp::testing
