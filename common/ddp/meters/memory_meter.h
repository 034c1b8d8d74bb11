#pragma once

#include <cstdint>
#include <map>

namespace ddp {

/// Counts the memory of this process's CPU tensors, for claims such as "no more than the gradients
/// and one bucket". It counts the bytes requested while it lives; a view requests none. Memory from
/// before is not counted, and freeing it changes nothing; memory may be freed later, or on any
/// other thread, as usual. There can be one at a time in a process, and it must not be made or
/// destroyed while another thread allocates. An operator turns a number (the 3 in t.div_(3)) into a
/// temporary tensor, too: 8 bytes.
///
/// Not counted, but see other_bytes(): memory that is not from libtorch's CPU allocator, such as a
/// std::vector, memory behind at::from_blob() (the graded group's own copies are made that way) or
/// on other devices; and a tensor from before that is resized (a storage keeps its allocator).
class MemoryMeter {
 public:
  /// Throws c10::Error if there is another one, or a CPU allocator that cannot be counted.
  MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;
  ~MemoryMeter();

  /// Bytes allocated and not yet freed.
  std::int64_t live_bytes() const;

  /// The maximum of live_bytes() since the last reset_peak(), or since construction.
  std::int64_t peak_bytes() const;
  void reset_peak();

  /// The sizes of what is allocated now, or was at that maximum, and how often there is each.
  using Sizes = std::map<std::int64_t, std::int64_t>;
  Sizes live_sizes() const;
  Sizes peak_sizes() const;

  /// Bytes of malloc since construction that are not these tensors': of a std::vector, say. 0 under
  /// AddressSanitizer. Memory that a program maps itself is nobody's.
  std::int64_t other_bytes() const;

  /// Number of allocations so far; empty tensors need none.
  std::int64_t allocations() const;

 private:
  std::int64_t heap_before_;
};

/// Bytes that this process has allocated by malloc, so by new and by CPU tensors, and not freed. 0
/// under AddressSanitizer, which cannot tell.
std::int64_t heap_bytes();

}  // namespace ddp
