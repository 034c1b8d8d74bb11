#pragma once

#include <string>
#include <vector>

#include "grader/scenario.h"

namespace ddp::testing {

/// The two forms of this stage.
enum class Form { kPerParameter, kFlat };

/// What ranks do with a form, the simplest first: all compute the same gradients, or not.
std::vector<Scenario> training(Form form);
std::vector<Scenario> rank_dependent(Form form);

/// Both, of both forms.
std::vector<Scenario> all_training();

/// Toy models: plain_models(), and all of them.
std::vector<Scenario> small_models();
std::vector<Scenario> all_models();

/// Misuse of both forms, which must be refused; and the destruction of their synchronizers.
std::vector<Scenario> misuse();
std::vector<Scenario> destruction();

}  // namespace ddp::testing
