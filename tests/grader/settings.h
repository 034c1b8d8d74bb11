#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "ddp/ranks/fork_ranks.h"

namespace ddp::testing {

/// The settings a test program was started with.
struct Settings {
  /// The stage under test; loaded in the ranks only, so that its code never runs in the process
  /// that decides the score.
  std::string stage_library;
  /// Whether the stage is somebody else's: it is confined, see ddp/ranks/confine.h.
  bool untrusted = false;
  /// Whether the caller keeps the tests or the seed secret, so that no text of the stage's is passed on.
  bool withhold = false;
  /// Different in every run unless given; all random numbers of the tests derive from it.
  std::uint64_t seed = 0;
  /// The only scenario that claims are judged on; empty: all of theirs.
  std::string scenario;
  /// Whether a claim is judged no further than to the first scenario that breaks it.
  bool brief = false;
  at::Device device = at::kCPU;
  /// A file that says what each scenario does at least, see grader/minimum_activity.h; empty: none.
  std::string minimum_activity;
  /// Where the timelines of all ranks are written, see grader/run_output.h; empty: nowhere.
  std::string trace;
  /// The time limit for a group of ranks.
  std::chrono::milliseconds deadline{10'000};
  /// `make debug`: which rank of which scenario waits for gdb, and the folder with the two pipes by which
  /// they meet; empty: nobody debugs. tools/grading/debugging/debug.py starts it.
  struct {
    std::string folder;
    std::string scenario;
    int rank = 0;
  } debug;
};

/// The settings of this process; written once, when the program starts.
Settings& settings();

/// How the ranks that load the stage under test are forked.
ForkOptions options_of_ranks();

/// What may be shown of a text that the stage has a part in: all of it, or nothing.
std::string shown(const std::string& text);

/// Makes the stage under test callable in this rank, which is confined first if it is not trusted.
void load_stage_under_test();

/// Makes the functions of a library of the build's lib/ callable in this rank.
void load_lab_library(const std::string& name);

}  // namespace ddp::testing
