#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "grader/buckets.h"

// Which parameters share a bucket; what is launched for which bucket, and when. Each function with
// evidence returns what is wrong, or nothing.

namespace ddp::testing {

/// What the factory tells beside the plan: the cap.
constexpr ValueKey kCap{"cap"};

/// Describes the first of the contract's rules that `plan` breaks; empty if it keeps all of them.
/// The rules leave no choice: only the contract's own plan keeps them all.
std::string broken_rule(const Plan& plan, const std::vector<at::Tensor>& parameters,
                        std::int64_t cap_bytes);

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
