#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace ddp::testing {

/// A test that gives points. Its name is the claim it checks, in snake_case.
struct Claim {
  const char* name;
  int points;  // 0: a report
  /// One line that helps a student who fails it; shown by `make hint`.
  const char* hint;
};

/// Declares a graded test, at namespace scope:
///
///     const GradedTest kBroadcasts{{.name = "...", .points = 2, .hint = "..."}, [] { ... EXPECT_EQ
///     ... }};
class GradedTest {
 public:
  // The builtins, not std::source_location, which clang 14 lacks.
  GradedTest(const Claim& claim, std::function<void()> body, const char* file = __builtin_FILE(),
             int line = __builtin_LINE());
};

struct DeclaredTest {
  Claim claim;
  std::string file;
  int line;
};

/// All graded tests of this program, in the order of declaration.
const std::vector<DeclaredTest>& declared_tests();

/// To be called within a test, in the parent: the stage's code is not written yet.
void note_todo(const std::string& text);

/// A line for the scorecard that decides nothing, such as a measured ratio.
void note_measured(const std::string& text);

/// The message of a failure, without what GoogleTest puts around it.
std::string failure_text(const ::testing::TestPartResult& part);

/// Writes what happens to `fd`, a JSON object a line; see docs of tools/grading/runner.py. Call before
/// RUN_ALL_TESTS().
void write_records_to(int fd);

}  // namespace ddp::testing
