#pragma once

#include <string>
#include <vector>

#include "support/body.h"

namespace ddp::testing {

/// The two forms of this stage.
enum class Form { kPerParameter, kFlat };

/// What ranks do with a form, the simplest first: all compute the same gradients, or not.
const std::vector<Body>& training(Form form);
const std::vector<Body>& rank_dependent(Form form);

/// Both, of both forms.
const std::vector<Body>& all_training();

/// Toy models: plain_models(), and all of them.
const std::vector<Body>& small_models();
const std::vector<Body>& all_models();

/// Misuse of both forms, which must be refused; and the destruction of their synchronizers.
const std::vector<Body>& misuse();
const std::vector<Body>& destruction();

}  // namespace ddp::testing
