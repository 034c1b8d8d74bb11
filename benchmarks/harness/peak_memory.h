#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace ddp {

/// The peak number of bytes of tensors on `device` that are alive at once while `body` runs,
/// counting only what `body` allocates: on the CPU as a MemoryMeter counts, on a GPU as
/// torch.cuda.max_memory_allocated() does, in blocks of 512 bytes.
std::int64_t peak_bytes(const at::Device& device, const std::function<void()>& body);

}  // namespace ddp
