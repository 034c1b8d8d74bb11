#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/benchmark.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ddp {

/// Further settings of a flag, after CommandLine::add().
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag& in_range(std::int64_t least, std::int64_t most);
  Flag& positive();
  Flag& non_negative();
  Flag& one_of(std::vector<std::string> values);
  /// The flag is an error without the other one.
  Flag& needs(const std::string& other);
  /// --help shows the variable's current value, or this text.
  Flag& show_default();
  Flag& show_default(const std::string& text);
  Flag& describe(const std::string& help);

 private:
  CLI::Option* option_;
};

/// The command line of a program, read by CLI11. Only the .cpp includes CLI11, which takes about
/// six seconds to compile in each file that does.
class CommandLine {
 public:
  explicit CommandLine(const std::string& description);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  /// A flag with a value: int, int64_t, uint64_t, double, std::string, or a container of them, whose
  /// values follow one flag, separated by commas or spaces; which containers: command_line.cpp, at
  /// the end of add(). `value` must outlive parse().
  template <typename Value>
  Flag add(const std::string& name, Value& value, const std::string& help);

  /// A flag without a value, which sets `value`; "--on,!--off" is a pair of them.
  void add_switch(const std::string& name, bool& value, const std::string& help);

  /// An existing flag.
  Flag find(const std::string& name);
  void remove(const std::string& name);

  /// The text at the end of --help.
  void set_footer(const std::string& text);

  /// Sets the variables. Returns the exit code if the program should end now: after --help, or
  /// after a mistake, which it explains on stderr.
  std::optional<int> parse(int argc, char** argv);

  /// True if the flag was given. Call it after parse().
  bool given(const std::string& name) const;

  /// Explains on stderr what is wrong with the flags, as parse() does; returns the exit code.
  int refuse(const std::string& mistake) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

/// Adds the flags that all benchmarks share, and stores the command line.
void add_flags(CommandLine& line, BenchmarkOptions& options, int argc, char** argv);

}  // namespace ddp
