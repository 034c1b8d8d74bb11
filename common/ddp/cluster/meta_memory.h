#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <numeric>

namespace ddp::cluster {

/// What a storage holds. Gradients are those of activations, too, and buckets on their way.
enum class MemoryKind : std::uint8_t { kParameters, kGradients, kOptimizer, kActivations };

constexpr std::array kMemoryKinds = {"parameters", "gradients", "optimizer state", "activations"};

/// Bytes by kind, and in which moment.
struct MemoryUse {
  std::array<std::int64_t, kMemoryKinds.size()> bytes = {};
  const char* moment = "";

  std::int64_t& of(MemoryKind kind) { return bytes[static_cast<std::size_t>(kind)]; }
  std::int64_t total() const {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }
};

/// Counts what tensors on the meta device would take if they had memory: the bytes of all storages
/// made while it lives, as MemoryMeter does for CPU tensors. A view takes none. There can be one at a
/// time in a process; tensors may outlive it.
///
/// A storage holds what the MemoryScope says in which it is made; parameters without one. What goes
/// through a collective is known, wherever it was made: see cluster_backend.h.
class MetaMemory {
 public:
  /// Throws c10::Error if there is another one.
  MetaMemory();
  MetaMemory(const MetaMemory&) = delete;
  MetaMemory& operator=(const MetaMemory&) = delete;
  ~MetaMemory();

  /// Storages that still exist.
  MemoryUse live() const;
  std::int64_t live_bytes() const { return live().total(); }

  /// The maximum of live_bytes() since the last reset_peak(), or since construction.
  MemoryUse peak() const;
  std::int64_t peak_bytes() const { return peak().total(); }
  void reset_peak();

  /// The one that there is, or none.
  static MetaMemory* current();
};

/// What storages are for that are made while it lives, and what that moment is called.
class MemoryScope {
 public:
  MemoryScope(MemoryKind kind, const char* moment);
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  ~MemoryScope();

 private:
  const MemoryKind kind_;
  const char* const moment_;  // of the scope around it
};

/// From now on, and at a peak that has been while it was there, the tensor's storage is of that kind.
void tell_kind(const at::Tensor& meta, MemoryKind kind);

}  // namespace ddp::cluster
