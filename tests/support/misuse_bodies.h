#pragma once

#include <vector>

#include "support/training_bodies.h"

namespace ddp::testing {

/// Wrong arguments and sparse gradients, on all ranks and on one alone; for stages 01-03.
std::vector<Body> misuse_bodies(const SynchronizerUnderTest& subject);

/// A second backward outside NoSync before finish(), which must throw, on every rank.
void second_backward(Client& client, const Factory& make);

/// Backward fails in a hook that is not the synchronizer's, and the step is tried again.
Body failing_hook_body(const SynchronizerUnderTest& subject);

/// A synchronizer is destroyed, and its parameters live on.
std::vector<Body> destruction_bodies(const SynchronizerUnderTest& subject);

}  // namespace ddp::testing
