#pragma once

#include <cstdint>
#include <string>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "support/training_bodies.h"

// What the bodies of this stage share.

namespace ddp::testing {

/// Calls this stage's factory, and hands in the plan and the options.
Factory bucketed(const BucketedDdpOptions& options);

/// Caps: a parameter in each bucket; some; all of a dtype.
constexpr std::int64_t kEach = 1;
constexpr std::int64_t kSome = 300;
constexpr std::int64_t kOne = std::int64_t{25} << 20;

/// Tests that are charged with bodies.
constexpr const char* kMeanTest = "gradients_are_the_mean_over_ranks";
constexpr const char* kOrderTest = "buckets_start_in_plan_order";
constexpr const char* kNoOverlapTest = "without_overlap_buckets_are_reduced_after_backward";
constexpr const char* kErrorsTest = "errors_name_the_parameter";
constexpr const char* kDestructionTest = "destruction_unhooks";

/// The synchronizer with these options; `form` begins its bodies' names.
inline SynchronizerUnderTest subject(const BucketedDdpOptions& options,
                                     const std::string& form = "") {
  const bool overlap = options.overlap;
  return {
      .make = bucketed(options),
      .charged = {.mean = overlap ? kMeanTest : kNoOverlapTest,
                  .missing = overlap ? kOrderTest : kNoOverlapTest,
                  .accumulation = overlap ? "gradients_accumulate_inside_no_sync" : kNoOverlapTest,
                  .lifetime = overlap ? kDestructionTest : kNoOverlapTest,
                  .growth = "buckets_take_the_gradients_bytes_and_one_bucket",
                  .errors = kErrorsTest},
      .form = form};
}

}  // namespace ddp::testing
