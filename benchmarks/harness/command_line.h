#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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

template <typename Value, typename... Known>
concept OneOf = (std::same_as<Value, Known> || ...);

/// What a flag may set. The .cpp has the code for each; add a type there and here.
template <typename Value>
concept FlagValue = OneOf<Value, int, std::int64_t, std::uint64_t, double, std::string,
                          std::vector<int>, std::vector<std::int64_t>, std::vector<std::string>,
                          std::set<int>, std::set<std::int64_t>, std::array<double, 5>>;

/// The command line of a program, read by CLI11. Only the .cpp includes CLI11, which takes about
/// six seconds to compile in each file that does.
class CommandLine {
 public:
  explicit CommandLine(const std::string& description);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  /// A flag with a value. The values of a container follow one flag, separated by commas or spaces.
  /// `value` must outlive parse().
  template <FlagValue Value>
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
/// Those of a slower link, which are among them.
void add_flags(CommandLine& line, LinkLimit& limit);

}  // namespace ddp
