#pragma once

#include <string>
#include <vector>

#include "support/training_evidence.h"

// What is launched for which bucket, and when. Each function with evidence returns what is wrong, or
// nothing.

namespace ddp::testing {

/// A bucket as its members' layers.
struct Bucket {
  std::vector<std::int64_t> layers;
  at::ScalarType dtype = at::kFloat;
  std::int64_t elements = 0;
  std::int64_t chunk = 0;  // elements of a shard

  std::int64_t chunk_bytes() const {
    return chunk * static_cast<std::int64_t>(c10::elementSize(dtype));
  }
};

/// The rank's buckets that have elements, in plan order.
std::vector<Bucket> buckets_of(const TrainingOfRank& training, std::size_t ranks);

/// What a step launches outside NoSync, in order.
struct Launches {
  std::vector<const Seen*> reduce_scatters, all_gathers, others;
};
Launches launches_of(const TrainingStep& step);

/// Every step leaves each bucket reduced once and gathered once, and nothing else is launched but what
/// clipping needs.
std::string each_bucket_once(const Evidence& evidence);

/// The factory was called once for each bucket, with a flat leaf of its N-th.
std::string each_bucket_has_a_shard(const Evidence& evidence);

/// Reduce-scatters in plan order, then all-gathers in plan order; step() launches all reduce-scatters
/// that are left, and then waits.
std::string in_plan_order(const Evidence& evidence);

/// A reduce-scatter starts with its bucket's last gradient, when it is its turn; the bucket's gradients
/// are gone by then, and all are after step().
std::string with_its_last_gradient(const Evidence& evidence);

/// A bucket's all-gather starts between its optimizer's step and the next one's.
std::string with_its_update(const Evidence& evidence);

/// Nothing is launched before step(), nor while anything is under way.
std::string after_backward_one_by_one(const Evidence& evidence);

}  // namespace ddp::testing
