#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/benchmark.h"
#include "harness/interleaved.h"
#include "harness/resumable_rows.h"
#include "peers/all_reduces.h"

namespace ddp {

// What the two procedures of this program have in common.

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
Result header(const RingOptions& settings, const ProcessGroupPtr& group);

/// A rank's tensor: random float32, the same in every run with the same `seed`.
at::Tensor draw_input(const Pair& pair, std::uint64_t seed, const at::Device& device);

/// getrusage()'s ru_maxrss of this process.
double peak_memory_kib();

/// Prints the means of `quantities`, a line for each row and variant.
void print_table(const Result& result, std::span<const Quantity> quantities);

/// The published procedure: each repeat of each variant forks its ranks anew, on the CPU, connects
/// them, and measures the first call of their lives. Measured are, as published,
///
///     time    seconds from before the rank draws its input until the call returns, so with all
///             that a process does once: no rank waits for the others before; the maximum over ranks
///     maxrss  getrusage()'s ru_maxrss, in KiB, when the call has ended; the maximum over ranks
///     diff    the sum of the squared errors of rank 0's result against the mean in float32, of
///             the same input in every repeat
///
/// Published ranks were spawned, with an interpreter each, which is in their time and memory; ours
/// are forked. Returns the program's exit code.
int measure_first_calls(RingOptions settings);

/// Calls one after the other in ranks that stay, after some to warm up: what one of many calls of a
/// training costs. The two variants are interleaved, call by call, on equal input. Measured are
///
///     time       seconds of the call alone, which all ranks begin together
///     maxrss     getrusage()'s ru_maxrss, in KiB, when the call has ended: the peak memory of the
///                process, or, where Linux can reset that, the peak since the call began
///     allocated  the peak of the bytes that the call had allocated, beyond the tensor: of tensors
///                only, so not what the backend keeps for itself
///     diff       the sum of the squared errors of the result's elements, against the mean in
///                float64
///
/// each of them the maximum over all ranks. Returns the program's exit code.
int measure_warm_calls(const RingOptions& settings);

}  // namespace ddp
