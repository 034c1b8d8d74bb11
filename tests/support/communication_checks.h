#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/ranks.h"

// What was communicated: checks shared by the tests of several stages.

namespace ddp::testing {

/// One line for each operation, for messages, such as
/// "\n    all-reduce of the gradient of fc1.weight, 192 bytes of float32"; " nothing" for none.
std::string list_of(const std::vector<RecordedOperation>& operations);

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values);

/// Fails if the recorder has seen any operation since its last clear().
void expect_silence(Rank& rank, const std::string& when);

/// Fails if the ranks launched different kinds, payloads or dtypes, or in a different order. Names
/// are not compared: a temporary on one rank may correspond to a gradient on another. A collective
/// call.
void expect_same_order_everywhere(Rank& rank, const std::vector<RecordedOperation>& operations);

}  // namespace ddp::testing
