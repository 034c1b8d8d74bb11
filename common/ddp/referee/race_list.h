#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace ddp {

/// Collects what was found out about misuse; shared by a CheckedBackend and its operations.
class RaceList {
 public:
  /// Each text is kept once, and so many of them as somebody may want to read.
  void add(std::string race);
  std::vector<std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> races_;
};

}  // namespace ddp
