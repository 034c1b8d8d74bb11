#pragma once

#include <string>
#include <vector>

#include "support/body.h"
#include "support/training.h"

namespace ddp::testing {

/// The stage's tests that are charged if a body does not come to its end.
struct ChargedTests {
  std::string mean, missing, accumulation, lifetime, growth, errors;
  /// Where gradients are undefined on all ranks; empty: as `mean`.
  std::string undefined = "";
};

/// A synchronizer of stages 01-03 under test, of which a stage may have several forms.
struct SynchronizerUnderTest {
  Factory make;
  ChargedTests charged;
  std::string form = "";     // begins the bodies' names
  bool mixed_dtypes = true;  // whether a model may have several
};

/// Bodies in which all ranks compute the same gradients in the same order, the simplest first.
std::vector<Body> training_bodies(const SynchronizerUnderTest& subject);

/// Bodies in which they do not: layers that only some ranks use, ranks without a backward.
std::vector<Body> rank_dependent_bodies(const SynchronizerUnderTest& subject);

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
