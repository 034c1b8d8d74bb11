#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace ddp::testing {

/// Records which ATen operators are called during its lifetime, on any thread of this process. Only
/// one may exist at a time. The graded group's own operators are not recorded.
class OperatorWatch {
 public:
  OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch();

  /// Their names, such as "aten::mul".
  std::set<std::string> called() const;

 private:
  std::uint64_t handle_;
};

}  // namespace ddp::testing
