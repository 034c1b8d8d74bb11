#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "03_bucketed_ddp/bucketed_ddp.h"

namespace ddp::testing {

using Plan = std::vector<std::vector<std::size_t>>;

/// "{{2, 1}, {0}}".
std::string to_string(const Plan& plan);

/// The first index of the tensor that is at `index`: tied weights are listed for each use.
std::size_t first_occurrence(const std::vector<at::Tensor>& parameters, std::size_t index);

/// A plan as a tensor, in which -1 ends a bucket.
at::Tensor as_tensor(const Plan& plan);
Plan as_plan(const at::Tensor& numbers);

/// Describes the first of the contract's rules that `plan` breaks; empty if it keeps all of them.
/// The rules leave no choice: only the contract's own plan keeps them all.
std::string broken_rule(const Plan& plan, const std::vector<at::Tensor>& parameters,
                        std::int64_t cap_bytes);

}  // namespace ddp::testing
