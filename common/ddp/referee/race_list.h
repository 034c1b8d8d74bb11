#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace ddp {

/// Collects the findings of a CheckedBackend, which shares it with its operations.
class RaceList {
 public:
  /// Keeps each text once, and no more texts than anyone would read.
  void add(std::string race);
  std::vector<std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> races_;
};

}  // namespace ddp
