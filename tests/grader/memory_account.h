#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "ddp/meters/memory_meter.h"
#include "ddp/referee/client.h"

namespace ddp::testing {

/// Tells what a rank's tensors take, for memory_is_bounded(). `names`: what has how many bytes, "a shard".
class MemoryAccount {
 public:
  using Names = std::multimap<std::int64_t, std::string>;
  MemoryAccount(Client& client, Names names) : client_(client), names_(std::move(names)) {}

  /// At the most since the last peak() or reset().
  void peak(const std::string& what, std::int64_t allowed) {
    tell(what, allowed, meter_.peak_bytes(), meter_.peak_sizes());
    meter_.reset_peak();
  }

  /// When all is settled.
  void held(const std::string& what, std::int64_t allowed) {
    client_.settle();
    tell(what, allowed, meter_.live_bytes(), meter_.live_sizes());
  }

  /// For growth_in_steps().
  void count() {
    client_.settle();
    client_.fact("held: handles of operations", client_.live_handles());
    client_.fact("held: bytes of tensors", meter_.live_bytes());
  }

  /// peak() begins anew, once all is settled.
  void reset() {
    client_.settle();
    meter_.reset_peak();
  }

 private:
  void tell(const std::string& what, std::int64_t allowed, std::int64_t bytes,
            const MemoryMeter::Sizes& sizes);

  Client& client_;
  const Names names_;
  MemoryMeter meter_;
};

}  // namespace ddp::testing
