#pragma once

#include <string>
#include <vector>

#include "grader/scenario.h"

// Scenarios without a Case.

namespace ddp::testing {

/// Tests that are charged with scenarios.
constexpr const char* kHeldTest = "a_rank_holds_an_nth_between_steps";
constexpr const char* kStateTest = "states_load_into_worlds_of_other_sizes";
constexpr const char* kErrorsTest = "errors_come_before_communication";
constexpr const char* kDestructionTest = "destruction_ends_everything";

std::vector<Scenario> states();
std::vector<Scenario> misuse();
std::vector<Scenario> destruction();
std::vector<Scenario> memory();
constexpr int kStepsBetweenCounts = 20;  // of what is held

/// Hands in what is there as "is: <what>", and what should be as "should be: <what>", for
/// states_are_those_saved().
void compare(Client& client, const std::string& what, const std::vector<at::Tensor>& actual,
             const std::vector<at::Tensor>& expected);

/// What memory() tells of as "... <which>" takes no more bytes than it may.
Predicate units_memory_is_bounded(const std::string& which);

/// whole_parameters() gathers each unit once, in the list's order.
Finding whole_parameters_are_gathered_once(const Evidence& evidence);

/// States that were loaded are those that were saved, bit for bit, and nothing was communicated.
Finding states_are_those_saved(const Evidence& evidence);

}  // namespace ddp::testing
