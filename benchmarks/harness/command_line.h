#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/benchmark.h"

namespace ddp {

/// Sets the variables. The values of a list follow one flag, separated by commas or spaces. Returns
/// the exit code if the program should end now: after --help, or after a mistake, which it explains
/// on stderr.
std::optional<int> parse(CLI::App& line, int argc, char** argv);

/// Explains on stderr what is wrong with the flags, as parse() does; returns the exit code.
int refuse(const CLI::App& line, const std::string& mistake);

/// Adds the flags that all benchmarks share, and stores the command line.
void add_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv);
/// Those of a slower link, which are among them.
void add_flags(CLI::App& line, LinkLimit& limit);

/// A flag for one of `choices`.
CLI::Option* add_choice(CLI::App& line, const char* flag, std::string& value,
                        const std::string& what, const std::vector<std::string>& choices);

/// A flag for a number from `least` to `most`, or for a list of them.
template <typename Value>
CLI::Option* add_number(CLI::App& line, const char* flag, Value& value, const std::string& what,
                        std::int64_t least = 1, std::int64_t most = 1 << 20) {
  return line.add_option(flag, value, what)->check(CLI::Range(least, most))->capture_default_str();
}

/// The same where the preset has the default.
template <typename Value>
CLI::Option* add_number_of_preset(CLI::App& line, const char* flag, Value& value,
                                  const std::string& what, std::int64_t least = 1,
                                  std::int64_t most = 1 << 20) {
  return line.add_option(flag, value, what + "; default: the preset's")
      ->check(CLI::Range(least, most));
}

/// A line or two for --help on what each of a program's presets measures.
struct PresetsInWords {
  std::string quick, full, paper;
  std::string published = {};  // empty: the program has no such preset
};
void describe_presets(CLI::App& line, const PresetsInWords& words);

/// The hardware of a published experiment.
struct Hardware {
  int gpus = 2;            // per machine
  std::string model = {};  // part of the GPUs' names, such as "RTX A4000"; empty: any
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
