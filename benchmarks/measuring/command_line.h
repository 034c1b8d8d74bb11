#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "measuring/benchmark.h"

namespace ddp {

/// One of the experiments of a program that has several, each with flags of its own.
struct Experiment {
  std::string name;
  std::string about;  // a line of the program's --help
  std::function<int(int argc, char** argv)> run;
};

/// Runs the experiment that the first argument names; returns its exit code. Otherwise lists them:
/// for --help, or after a mistake.
int run_experiment(const std::string& about, const std::vector<Experiment>& experiments, int argc,
                   char** argv);

/// The exit code after a mistake on the command line.
constexpr int kMisused = 2;

/// Sets the variables. The values of a list follow one flag, separated by commas or spaces; a
/// subcommand's flags follow its name. Returns the exit code if the program should end now: 0 after
/// --help, or kMisused after a mistake, which it explains on stderr.
std::optional<int> parse(CLI::App& line, int argc, char** argv);

/// Explains on stderr what is wrong with the flags, as parse() does; returns kMisused.
int refuse(const CLI::App& line, const std::string& mistake);

/// Adds the flags that all benchmarks share, and stores the command line.
void add_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv);
/// Those of them for programs that measure nothing, and compute times: whose code runs, and where the
/// result goes.
void add_computing_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv);
/// Those of a slower link, which are among them.
void add_flags(CLI::App& line, LinkLimit& limit);

/// The value of --preset on the command line, before that is parsed; empty if there is none.
std::string preset_in(int argc, char** argv);

/// A flag for one of `choices`.
CLI::Option* add_choice(CLI::App& line, const char* flag, std::string& value,
                        const std::string& what, const std::vector<std::string>& choices);

/// A flag for a number from `least` to `most`, or for a list of them.
template <typename Value>
CLI::Option* add_number(CLI::App& line, const char* flag, Value& value, const std::string& what,
                        std::int64_t least = 1, std::int64_t most = 1 << 20) {
  return line.add_option(flag, value, what)->check(CLI::Range(least, most))->capture_default_str();
}

/// The preset that the command line asks for: what flags then replace, one by one.
template <typename Preset>
const Preset& chosen(const std::map<std::string, Preset>& presets, int argc, char** argv) {
  const auto found = presets.find(preset_in(argc, argv));
  return found == presets.end() ? presets.at("quick") : found->second;  // parse() refuses others
}

/// A line or two for --help on what each of a program's presets measures.
struct PresetsInWords {
  std::string quick, full, paper;
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
