#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace ddp::testing {

/// What a test program was started with.
struct Settings {
  /// The stage under test; loaded in the ranks only, so that its code never runs in the process
  /// that keeps the score.
  std::string stage_library;
  /// Fresh in every run unless given; all random numbers of the tests come from it.
  std::uint64_t seed = 0;
  at::Device device = at::kCPU;
  /// Where the timelines of all ranks are written, see support/trace.h; empty: nowhere.
  std::string trace;
  /// How long a group of ranks may take.
  std::chrono::milliseconds deadline{10'000};
};

/// The settings of this process; written once, by the program's entry.
Settings& settings();

}  // namespace ddp::testing
