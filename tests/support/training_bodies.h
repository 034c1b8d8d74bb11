#pragma once

#include <vector>

#include "support/body.h"
#include "support/training.h"

namespace ddp::testing {

/// The stage's tests that are charged if a body does not come to its end.
struct ChargedTests {
  std::string mean, missing, accumulation, lifetime, growth, errors;
  std::string construction = "construction_broadcasts_rank_0";
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

}  // namespace ddp::testing
