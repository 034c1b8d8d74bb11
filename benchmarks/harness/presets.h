#pragma once

#include <string>

#include "harness/benchmark.h"
#include "harness/command_line.h"

namespace ddp {

/// What the presets of a program measure, in words: a line or two for each, for --help.
struct PresetsInWords {
  std::string quick, full, paper;
};
void describe_presets(CommandLine& line, const PresetsInWords& words);

/// What a published experiment ran on.
struct Hardware {
  int gpus = 2;       // of each machine
  std::string model;  // that the GPUs' names contain, such as "RTX A4000"; empty: any
};

/// Call it when the command line has been read. The preset "paper" repeats a published experiment
/// on the hardware that it was made with: it turns options.device to "cuda" where no flag has set
/// it. Where that hardware is missing it says so in one line on stderr, and returns kRefused;
/// otherwise returns 0. Other presets run anywhere.
int check_preset(const CommandLine& line, BenchmarkOptions& options, const Hardware& published);

}  // namespace ddp
