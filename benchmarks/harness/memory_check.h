#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "harness/benchmark.h"

namespace ddp {

/// Bytes that a new process can still allocate where `device`'s tensors live: in the machine's
/// memory, up to a container's limit, or in the GPU's, for which CUDA must be loaded.
std::int64_t available_memory(const at::Device& device);

/// How many ranks use this machine's memory, as far as the parent process knows: all ranks that it
/// forks; under a launcher, those up to its own.
int ranks_of_this_machine(const BenchmarkOptions& options);

/// "31.9 GB", with 10^9 bytes to the GB.
std::string in_gigabytes(std::int64_t bytes);

}  // namespace ddp
