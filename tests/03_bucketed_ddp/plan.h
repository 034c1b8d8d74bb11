#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/model.h"
#include "support/trainee.h"

namespace ddp::testing {

using Plan = std::vector<std::vector<std::size_t>>;

/// "{{2, 1}, {0}}".
std::string to_string(const Plan& plan);

/// Describes the first of the contract's rules that `plan` breaks; empty if it keeps all of them.
/// The rules leave no choice: only the contract's own plan keeps them all.
std::string broken_rule(const Plan& plan, const std::vector<at::Tensor>& parameters,
                        std::int64_t cap_bytes);

/// The stage's own plan. Throws c10::Error if it is not the contract's: then launches cannot be
/// judged.
Plan plan_of(const std::vector<NamedTensor>& parameters, std::int64_t cap_bytes);

/// What an all-reduce of a bucket carries.
struct Payload {
  std::int64_t bytes = 0;
  at::ScalarType dtype = at::ScalarType::Undefined;
  bool operator==(const Payload&) const = default;
};

/// Of each bucket, in plan order.
std::vector<Payload> payloads_of(const Plan& plan, const std::vector<NamedTensor>& parameters);

/// Of each all-reduce, in the order of launches.
std::vector<Payload> payloads_of(const std::vector<RecordedOperation>& all_reduces);

/// "3000 bytes of float32, 400 bytes of float32".
std::string to_string(const std::vector<Payload>& payloads);

/// make_bucketed_ddp() with these options.
MakeSynchronizer bucketed(const BucketedDdpOptions& options);
MakeSynchronizer bucketed(std::int64_t cap_bytes);

}  // namespace ddp::testing
