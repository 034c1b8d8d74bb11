#pragma once

#include <string>
#include <vector>

#include "support/training_bodies.h"

namespace ddp::testing {

using RunWith = void (*)(Client& client, const Factory& make);

/// A body that calls `run` with the stage's factory.
Body body_of(const SynchronizerUnderTest& subject, const std::string& name, int ranks, RunWith run,
             const std::string& charged_to);

/// Wrong arguments and sparse gradients, on all ranks and on one alone; for stages 01-03.
std::vector<Body> misuse_bodies(const SynchronizerUnderTest& subject);

/// A sparse gradient that was accumulated inside NoSync, and is none when it would be sent.
Body sparse_made_dense(const SynchronizerUnderTest& subject);

/// For stages in which it is the hook that refuses, and so backward.
Body refused_in_backward(const SynchronizerUnderTest& subject);

/// A second backward outside NoSync before finish(), which must throw, on every rank.
std::vector<Body> second_backward_bodies(const SynchronizerUnderTest& subject);

/// Training after an error: of a hook that is not the synchronizer's, and of another synchronizer.
std::vector<Body> recovery_bodies(const SynchronizerUnderTest& subject);

/// The same on one rank alone, for synchronizers of which each finish() reduces everything.
Body failure_on_one_rank(const SynchronizerUnderTest& subject);

/// A synchronizer is destroyed, and its parameters live on.
std::vector<Body> destruction_bodies(const SynchronizerUnderTest& subject);

}  // namespace ddp::testing
