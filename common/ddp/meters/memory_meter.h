#pragma once

#include <cstdint>

namespace ddp {

/// Counts the memory of this process's CPU tensors, for claims such as "no more than the gradients
/// and one bucket". It counts what is allocated while it lives, in bytes as asked for; a view has
/// none of its own. Memory from before is not counted, and freeing it changes nothing; what is
/// freed later, or on any other thread, is freed as ever. One at a time in a process; not to be
/// made or destroyed while another thread allocates. What an operator makes of a number (the 3 in
/// t.div_(3)) is a tensor, too: 8 bytes for a moment.
///
/// Not seen: what is not libtorch's CPU allocator's, such as a std::vector, memory behind
/// at::from_blob() (the graded group's own copies are made that way), other devices, and a tensor
/// from before that is resized (a storage keeps its allocator).
class MemoryMeter {
 public:
  /// Throws c10::Error if there is another one, or a CPU allocator that cannot be counted.
  MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;
  ~MemoryMeter();

  /// Allocated and not yet freed.
  std::int64_t live_bytes() const;

  /// The most that was live at once since the last reset_peak(), or ever.
  std::int64_t peak_bytes() const;
  void reset_peak();

  /// How many allocations there were; empty tensors need none.
  std::int64_t allocations() const;
};

}  // namespace ddp
