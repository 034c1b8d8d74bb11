#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace ddp {

/// The most bytes of tensors on `device` that live at once while `body` runs, of what it allocates:
/// as a MemoryMeter counts on the CPU, and, on a GPU, as torch.cuda.max_memory_allocated() does, in
/// blocks of 512 bytes.
std::int64_t peak_bytes(const at::Device& device, const std::function<void()>& body);

}  // namespace ddp
