#pragma once

#include <string>
#include <vector>

#include "plan.h"
#include "support/training_evidence.h"

// What is launched for which bucket, and when. Each function with evidence returns what is wrong, or
// nothing.

namespace ddp::testing {

/// A bucket as its members' layers.
struct Bucket {
  std::vector<std::int64_t> layers;
  Payload payload;
  std::int64_t bytes = 0;
};

/// The rank's buckets, in plan order.
std::vector<Bucket> buckets_of(const TrainingOfRank& training);

/// For `unless` of judge(): a plan that is not the contract's, against which no launch can be judged.
std::string plan_is_wrong(const Evidence& evidence);

/// Every finish() leaves each bucket reduced once, and nothing else is launched.
std::string each_bucket_once(const Evidence& evidence);

/// In plan order.
std::string in_plan_order(const Evidence& evidence);

/// finish() launches all that are left, and then waits.
std::string rest_is_launched_before_it_is_awaited(const Evidence& evidence);

/// A bucket is launched once its last gradient is ready, and the bucket before it launched: in the
/// hook, or in finish() if a gradient never came.
std::string with_its_last_gradient(const Evidence& evidence);

/// Nothing is launched before finish(), which waits for each bucket before it launches the next.
std::string after_backward_one_by_one(const Evidence& evidence);

}  // namespace ddp::testing
