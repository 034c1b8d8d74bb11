#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

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

}  // namespace ddp
