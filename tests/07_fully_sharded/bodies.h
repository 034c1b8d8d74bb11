#pragma once

#include "support/body.h"

namespace ddp::testing {

/// Tests that are charged with bodies.
constexpr const char* kHeldTest = "a_rank_holds_an_nth_between_steps";
constexpr const char* kStateTest = "states_load_into_worlds_of_other_sizes";
constexpr const char* kErrorsTest = "errors_come_before_communication";
constexpr const char* kDestructionTest = "destruction_ends_everything";

/// Steps of several models.
const std::vector<Body>& training();
/// Of which the header says where each all-gather comes.
const std::vector<Body>& determined();
const std::vector<Body>& without_accumulation();
const std::vector<Body>& accumulating();
const std::vector<Body>& clipping();

/// Layers that take time, with several units gathered ahead.
const std::vector<Body>& timed();

const std::vector<Body>& states();
const std::vector<Body>& misuse();
const std::vector<Body>& destruction();
const std::vector<Body>& memory();
constexpr int kStepsBetweenCounts = 20;  // of what is held

/// What memory() tells of as "... <which>" takes no more bytes than it may.
Predicate units_memory_is_bounded(const std::string& which);

/// whole_parameters() gathers each unit once, in the list's order.
std::string whole_parameters_are_gathered_once(const Evidence& evidence);

/// States that were loaded are those that were saved, bit for bit, and nothing was communicated.
std::string states_are_those_saved(const Evidence& evidence);

}  // namespace ddp::testing
