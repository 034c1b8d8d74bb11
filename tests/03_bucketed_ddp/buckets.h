#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "grader/training_evidence.h"

// Which parameters share a bucket; what is launched for which bucket, and when. Each function with
// evidence returns what is wrong, or nothing.

namespace ddp::testing {

using Plan = std::vector<std::vector<std::size_t>>;

/// A plan as a tensor, in which -1 ends a bucket.
at::Tensor as_tensor(const Plan& plan);
Plan as_plan(const at::Tensor& numbers);

/// Describes the first of the contract's rules that `plan` breaks; empty if it keeps all of them.
/// The rules leave no choice: only the contract's own plan keeps them all.
std::string broken_rule(const Plan& plan, const std::vector<at::Tensor>& parameters,
                        std::int64_t cap_bytes);

/// A bucket as its members' layers.
struct Bucket {
  std::vector<std::int64_t> layers;
  Payload payload;
  std::int64_t bytes = 0;
};

/// The rank's buckets, in plan order.
std::vector<Bucket> buckets_of(const TrainingOfRank& training);
std::vector<std::vector<std::int64_t>> layers_by_bucket(const std::vector<Bucket>& buckets);

/// For `unless` of judge(): a plan that is not the contract's, against which no launch can be judged.
Finding plan_is_wrong(const Evidence& evidence);

/// Every finish() leaves each bucket reduced once, and nothing else is launched.
Finding each_bucket_once(const Evidence& evidence);

/// In plan order.
Finding in_plan_order(const Evidence& evidence);

/// finish() launches all that are left, and then waits.
Finding rest_is_launched_before_it_is_awaited(const Evidence& evidence);

/// A bucket is launched once its last gradient is ready, and the bucket before it launched: in the
/// hook, or in finish() if a gradient never came.
Finding with_its_last_gradient(const Evidence& evidence);

/// Nothing is launched before finish(), which waits for each bucket before it launches the next.
Finding after_backward_one_by_one(const Evidence& evidence);

}  // namespace ddp::testing
