#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/trainee.h"

// What was communicated: checks that the tests of stages 01-03 share.

namespace ddp::testing {

/// One line for each operation, for messages: "\n    all-reduce of the gradient of fc1.weight, 192
/// bytes of float32"; " nothing" for none.
std::string list_of(const std::vector<RecordedOperation>& operations);

/// The all-reduces among them. Anything else that carries data is a failure; a barrier carries
/// none.
std::vector<RecordedOperation> all_reduces(const std::vector<RecordedOperation>& operations);

/// The payload of each, in order.
std::vector<std::int64_t> payloads(const std::vector<RecordedOperation>& operations);

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values);

/// The bytes of each trainable parameter, tied ones once, in the model's order.
std::vector<std::int64_t> gradient_bytes(const std::vector<NamedTensor>& parameters);

/// Fails if the recorder has seen any operation since its last clear().
void expect_silence(Rank& rank, const std::string& when);

/// Fails if ranks launched other kinds, payloads or dtypes, or in another order. By these and not
/// by name: a temporary on one rank may stand for a gradient on another. A collective call.
void expect_same_order_everywhere(Rank& rank, const std::vector<RecordedOperation>& operations);

}  // namespace ddp::testing
