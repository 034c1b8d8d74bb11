// What claims get of evidence to which a stage's code may have added.
#include "grader/evidence_view.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/checks.h"

namespace ddp::testing {

namespace {

Seen told(EventKind kind, std::int64_t index) {
  Seen seen;
  seen.kind = kind;
  seen.text = "name";
  seen.index = index;
  return seen;
}

TEST(EvidenceView, WhatIsToldTwiceIsNotTaken) {
  for (const EventKind kind : {EventKind::kFact, EventKind::kValue}) {
    const Seen first = told(kind, 0), second = told(kind, 1);
    Said said;
    const auto known = [&] {
      return said.number(FactKey{"name"}, 0) || said[ValueKey{"name"}].contains(0);
    };
    said.add(first);
    said.add(second);
    EXPECT_TRUE(known());
    said.add(first);
    expect_error("a rank told \"name\" twice", known);
  }
}

TEST(EvidenceView, WhatCannotBeSortedIsNoClaimsToPass) {
  const Evidence evidence;
  int (*const sort)(const Evidence&) = [](const Evidence&) -> int { TORCH_CHECK(false, "forged"); };
  for (int claim = 0; claim < 2; ++claim) {
    expect_error("forged", [&] { sorted_once(evidence, sort); });
  }
}

}  // namespace

}  // namespace ddp::testing
