#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddp/benchmark.h"

namespace ddp {

// For programs that measure several worlds of ranks, one after the other, and write one result.

/// The worlds to run: that of --world-size where it is given; under torchrun, mpirun or srun, the
/// one that they have started; else `preset`. To be called when the command line has been read.
std::vector<int> choose_worlds(const CLI::App& app, const BenchmarkOptions& options,
                               const std::vector<int>& preset);

/// Says in --help what --world-size means for such a program.
void describe_worlds(CLI::App& app, const std::vector<int>& preset);

/// Runs `body` in each world, with the stage's library loaded: see run_benchmark(). Stops at the
/// first that fails, and returns its exit code. Refuses options.trace for more than one world.
int run_worlds(const BenchmarkOptions& options, const std::vector<int>& worlds,
               const std::string& stage, const RankBody& body);

/// A list of numbers in memory that a process shares with those it forks: rank 0 of one world
/// leaves here what rank 0 of a later one writes into the result.
class SharedNumbers {
 public:
  /// Room for `capacity` numbers; to be made before the ranks are.
  explicit SharedNumbers(std::size_t capacity);
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;
  ~SharedNumbers();

  /// By one process at a time. Throws c10::Error where there is no room.
  void append(std::span<const double> numbers);

  /// In the order in which they were appended.
  std::span<const double> all() const;

 private:
  struct Memory;
  std::size_t capacity_, bytes_;
  Memory* memory_;  // the mapping, released by munmap
};

}  // namespace ddp
