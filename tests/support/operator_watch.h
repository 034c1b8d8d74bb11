#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace ddp::testing {

/// Notes which of ATen's operators are called while it lives, on any thread of this process. One at
/// a time. What the graded group does for itself is not seen.
class OperatorWatch {
 public:
  OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch();

  /// Their names, "aten::mul" for one.
  std::set<std::string> called() const;

 private:
  std::uint64_t handle_;
};

}  // namespace ddp::testing
