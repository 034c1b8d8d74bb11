#pragma once

#include <string>
#include <vector>

#include "support/body.h"

namespace ddp::testing {

/// The two forms of this stage.
enum class Form { kPerParameter, kFlat };

/// What ranks do with a form, the simplest first: all compute the same gradients, or not.
std::vector<Body> training(Form form);
std::vector<Body> rank_dependent(Form form);

/// Both, of both forms.
std::vector<Body> all_training();

/// Toy models: plain_models(), and all of them.
std::vector<Body> small_models();
std::vector<Body> all_models();

/// Misuse of both forms, which must be refused; and the destruction of their synchronizers.
std::vector<Body> misuse();
std::vector<Body> destruction();

}  // namespace ddp::testing
