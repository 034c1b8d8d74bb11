#pragma once

#include <string>
#include <vector>

#include "support/body.h"

// One slip, one price. What a test finds in a body with nothing rare about it costs the test's points.
// What it finds only together with something rare costs them once for all tests: those of the test
// that such a body is charged to, if that one finds something there, too, or else of the first test
// that does. The others are judged by the rest of their bodies, in which the claim holds.

namespace ddp::testing {

/// What is wrong in a body.
struct Broken {
  const Body* body;
  std::string text;
};

/// What a test found in all bodies of a list.
struct Judgement {
  std::vector<Broken> broken;  // the simplest first
  int judged = 0;              // bodies of which something can be said
  std::string unjudged;        // why the test cannot be judged; empty: it can
};

/// Makes a failure of the current test, a note that another one is charged, or neither.
void settle(const Judgement& found);

/// From now on the test is charged for something rare.
void charge(const Rare& rare, const std::string& test);

/// Whether a test is only looked at, for what it will find; takes `found` then.
bool is_rehearsal();
void rehearse(const Judgement& found);

/// The current test, or the one that is rehearsed.
std::string test_in_question();

}  // namespace ddp::testing
