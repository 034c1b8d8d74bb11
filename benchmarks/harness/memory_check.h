#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "harness/benchmark.h"

namespace ddp {

/// Bytes that a new process can still take where `device`'s tensors lie: of the machine's memory, a
/// container's limit counted in, or of the GPU's, for which CUDA must be loaded.
std::int64_t available_memory(const at::Device& device);

/// How many ranks take memory of this machine, as far as this process knows before it is one: all
/// that it forks; under a launcher, those up to its own.
int ranks_of_this_machine(const BenchmarkOptions& options);

/// "31.9 GB", of 10^9 bytes.
std::string in_gigabytes(std::int64_t bytes);

}  // namespace ddp
