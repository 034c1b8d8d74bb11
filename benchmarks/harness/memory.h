#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

namespace ddp {

/// Bytes that a new process can still allocate where `device`'s tensors live: in the machine's
/// memory, up to a container's limit, or in the GPU's, for which CUDA must be loaded.
std::int64_t available_memory(const at::Device& device);

/// The peak number of bytes of tensors on `device` that are alive at once while `body` runs,
/// counting only what `body` allocates: on the CPU as a MemoryMeter counts, on a GPU as
/// torch.cuda.max_memory_allocated() does, in blocks of 512 bytes.
std::int64_t peak_bytes(const at::Device& device, const std::function<void()>& body);

}  // namespace ddp
