#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/body.h"
#include "use_evidence.h"

// What must be true of uses: each says what is wrong, or nothing.

namespace ddp::testing {

enum Mode { kEvaluation, kTraining };

/// What `check` finds in the first batch of a mode.
Predicate in_batches(Mode mode, std::function<std::string(const Batch&)> check);

/// Tensors of these names are right; without any, all tensors are.
Predicate right(Mode mode, const std::vector<std::string>& names = {});
/// In both modes.
Predicate all_right();

/// These keep what does nothing from passing claims that something does not happen.
std::string something_is_normalized(const Batch& batch);
std::string something_is_communicated(const Evidence& evidence);

/// Forward in training changes running statistics and counter, in place; nothing else changes.
std::string nothing_else_changes(const Batch& batch);
/// The running statistics have the same bits.
std::string same_on_all_ranks(const Batch& batch);

std::string one_collective_each_way(const Batch& batch);
std::string nothing_in_flight_is_touched(const Evidence& evidence);
std::string nothing_is_left_in_flight(const Evidence& evidence);
std::string life_is_silent(const Evidence& evidence);
std::string evaluation_is_silent(const Batch& batch);
/// Makes claims on what evaluation computes meaningless.
std::string evaluation_communicates(const Evidence& evidence);
std::string graph_keeps_the_group(const Evidence& evidence);

}  // namespace ddp::testing
