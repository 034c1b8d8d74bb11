#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/benchmark.h"
#include "harness/interleaved.h"
#include "harness/progress.h"
#include "harness/resumable_rows.h"
#include "peers/all_reduces.h"

// What the two procedures of this program have in common.

namespace ddp {

struct Quantity {
  const char* name;
  const char* unit;
};

/// The ring and a peer, in one world: a row of a published table.
struct Pair {
  std::string peer;
  std::int64_t world, elements;

  std::array<std::string, 2> variants() const { return {kRing, peer}; }
  Parameters labels() const {
    return {{"peer", peer}, {"world_size", world}, {"tensor_size", elements}};
  }
};

constexpr const char* kPublishedProcedure = "published";
constexpr const char* kWarmProcedure = "warm";

struct RingOptions : BenchmarkOptions {
  std::string procedure = kPublishedProcedure;
  std::vector<int> worlds;
  Repetitions repetitions;
};

/// The pairs of one world.
std::vector<Pair> pairs_of(int world);

/// What the result says about the whole run.
PartialResult header(const RingOptions& settings, const ProcessGroupPtr& group);

/// A rank's tensor: random float32, the same in every run with the same `seed`.
at::Tensor draw_input(const Pair& pair, std::uint64_t seed, const at::Device& device);

/// getrusage()'s ru_maxrss of this process.
double peak_memory_kib();

/// Prints the means of `quantities`, a line for each row and variant.
void print_table(const Result& result, std::span<const Quantity> quantities);

}  // namespace ddp
