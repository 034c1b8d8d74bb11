#pragma once

#include <atomic>
#include <functional>

namespace ddp {

/// Finds out whether forked ranks met code that is not written yet. Made in the parent, before the
/// fork.
class UnfinishedCode {
 public:
  UnfinishedCode();
  UnfinishedCode(const UnfinishedCode&) = delete;
  UnfinishedCode& operator=(const UnfinishedCode&) = delete;
  ~UnfinishedCode();

  /// In a rank: runs `body`. A c10::NotImplementedError, as stubs throw, ends it; the first rank
  /// that `tells` prints its message to stderr.
  void look_for_it(const std::function<void()>& body, bool tells = true);

  /// In the parent: whether there was any.
  bool found() const { return *met_; }

 private:
  std::atomic<bool>* met_;  // in shared memory
};

}  // namespace ddp
