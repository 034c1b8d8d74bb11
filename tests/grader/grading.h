#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "grader/scenario.h"

namespace ddp::testing {

/// A test worth points. Its name is for commands, in snake_case; its title, a sentence or a phrase, is
/// what people read.
struct Claim {
  const char* name;
  const char* title = "";  // none: the name's words
  int points;
  /// One sentence of help for a student who fails the test; shown by `make hint`.
  const char* hint;
  /// Below it with LEVEL=2: where to look, and what to ask oneself.
  const char* more = "";
};

/// Declares a graded test, at namespace scope:
///
///     const GradedTest kBroadcasts{{.name = "...", .title = "...", .points = 2, .hint = "..."},
///                                  [] { judge(...); }};
class GradedTest {
 public:
  // The builtins, not std::source_location, which clang 14 lacks.
  GradedTest(const Claim& claim, std::function<void()> body, const char* file = __builtin_FILE(),
             int line = __builtin_LINE());
};

struct DeclaredTest {
  Claim claim;
  std::function<void()> body;
  std::string file;
  int line;
};

/// All graded tests of this program, by file and line: files are linked in any order.
const std::vector<DeclaredTest>& declared_tests();

/// Hands them to GoogleTest, in that order. Call before RUN_ALL_TESTS().
void register_graded_tests();

/// Call it within a test, in the parent: the stage's code is not written yet.
void note_todo(const std::string& text);

/// Call it within a test, in the parent: nothing can be said, because of what another test reports.
/// A failure of the same test, before or after, takes its place.
void note_not_judged(const std::string& why);

/// Whether a test of this name is among those that run.
bool will_run(const std::string& test);

/// Call it within a test: it is judged on this scenario.
void note_scenario(const Scenario& scenario);

/// Call it within a test: a scenario has run. The grader ends a program that is silent.
void note_scenario_ended();

/// Call it within a test: the claim holds in so many of the runs that it is judged on.
void note_runs(int holds, int judged);

/// Call it within a test: another mistake leaves nothing to say of a scenario. A test of which that
/// leaves less than half is not judged, whatever holds in the rest.
void note_excused(const std::string& why);

/// A scenario in which a claim is broken; what is deducted for it: tools/grading/scoring/deductions.py.
struct Broken {
  std::string scenario;
  EdgeCases edge_cases;
  std::string charged_to;
};

/// Call it within a test that fails for it.
void note_broken(const Broken& broken);

/// Call it within a test, once: the run that it is about, see grader/picture.h.
void note_picture(nlohmann::json picture);

/// The message of a failure, without the line that GoogleTest adds.
std::string failure_text(const ::testing::TestPartResult& part);

/// Writes test events to `fd`, one JSON object per line, and nothing else to anywhere; see
/// tools/grading/running/runner.py. Call before RUN_ALL_TESTS().
void write_records_to(int fd);

}  // namespace ddp::testing
