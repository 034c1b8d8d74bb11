#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/training_evidence.h"

// What is launched for which bucket, and when. Each function with evidence returns what is wrong, or
// nothing.

namespace ddp::testing {

/// A bucket as its members' layers.
struct Bucket {
  std::vector<std::int64_t> layers;
  std::vector<std::int64_t> empty_before;  // layers of the buckets before it that have no elements
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

/// What `check` finds in the first step that has ended, on any rank. One rank has nobody to talk to.
using StepCheck = std::function<std::string(const TrainingOfRank&, const TrainingStep&,
                                            const std::vector<Bucket>&)>;
std::string first_in_buckets(const Evidence& evidence, const StepCheck& check);

/// What these are made of: "bucket 0 of 2, of layer 1", "12, 24 bytes", what each rank puts in.
std::string name_of(const std::vector<Bucket>& buckets, std::size_t b);
std::string listed(const std::vector<std::int64_t>& bytes);
std::vector<std::int64_t> bytes_of(const std::vector<const Seen*>& launches);
std::vector<std::int64_t> bytes_of(const std::vector<Bucket>& buckets, std::size_t chunks);
std::size_t ranks_of(const Evidence& evidence, const TrainingOfRank& training);

/// Every step leaves each bucket reduced once and gathered once, and nothing else is launched but what
/// clipping needs.
std::string each_bucket_once(const Evidence& evidence);

/// The factory was called once for each bucket, with a flat leaf of its N-th; after construction it has
/// rank 0's values of that chunk.
std::string each_bucket_has_a_shard(const Evidence& evidence);

/// Reduce-scatters in plan order, then all-gathers in plan order; step() launches all reduce-scatters
/// that are left, and then waits.
std::string in_plan_order(const Evidence& evidence);

/// A reduce-scatter starts with its bucket's last gradient, when it is its turn (a bucket without
/// elements need not, but may be waited for); the bucket's gradients are gone by then, and all are after
/// step().
std::string with_its_last_gradient(const Evidence& evidence);

/// A bucket's all-gather starts between its optimizer's step and the next one's.
std::string with_its_update(const Evidence& evidence);

/// Nothing is launched before step(), nor while anything is under way.
std::string after_backward_one_by_one(const Evidence& evidence);

}  // namespace ddp::testing
