#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ddp {

/// Tells a sleeper, in whichever process, that there is something new. It lies in shared memory,
/// which is zero at first.
class Bell {
 public:
  std::uint32_t rings() const { return rings_.load(); }
  void ring();
  /// Returns when the bell has been rung since rings() was `seen`, or after `limit`.
  void sleep(std::uint32_t seen, std::chrono::milliseconds limit);

 private:
  std::atomic<std::uint32_t> rings_;
  std::atomic<std::uint32_t> sleepers_;  // without any, ringing costs no system call
};

}  // namespace ddp
