#pragma once

#include <cstdint>

namespace ddp::cluster {

/// Counts what tensors on the meta device would take if they had memory: the bytes of all storages
/// made while it lives, as MemoryMeter does for CPU tensors. A view takes none. There can be one at a
/// time in a process; tensors may outlive it.
class MetaMemory {
 public:
  /// Throws c10::Error if there is another one.
  MetaMemory();
  MetaMemory(const MetaMemory&) = delete;
  MetaMemory& operator=(const MetaMemory&) = delete;
  ~MetaMemory();

  /// Bytes of storages that still exist.
  std::int64_t live_bytes() const;

  /// The maximum of live_bytes() since the last reset_peak(), or since construction.
  std::int64_t peak_bytes() const;
  void reset_peak();
};

}  // namespace ddp::cluster
