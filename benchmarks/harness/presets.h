#pragma once

#include <optional>
#include <string>

#include "harness/benchmark.h"

namespace ddp {

/// A line or two for --help on what each of a program's presets measures.
struct PresetsInWords {
  std::string quick, full, paper;
  std::string published = {};  // empty: the program has no such preset
};
void describe_presets(CLI::App& line, const PresetsInWords& words);

/// The hardware of a published experiment.
struct Hardware {
  int gpus = 2;       // per machine
  std::string model;  // part of the GPUs' names, such as "RTX A4000"; empty: any
};

/// Call it after the command line has been parsed. The preset "paper" repeats a published
/// experiment on its original hardware: it sets options.device to "cuda" unless a flag has set it.
/// If that hardware is missing, prints one line to stderr and returns kRefused; otherwise returns
/// 0. Other presets run anywhere.
int check_preset(const CLI::App& line, BenchmarkOptions& options, const Hardware& published);

/// parse() and check_preset(), in that order: the exit code if the program should end now.
std::optional<int> parse(CLI::App& line, int argc, char** argv, BenchmarkOptions& options,
                         const Hardware& published);

}  // namespace ddp
