#pragma once

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace ddp::testing {

/// Records which ATen operators are called during its lifetime, on any thread of this process. Only
/// one may exist at a time. The graded group's own operators are not recorded.
class OperatorWatch {
 public:
  OperatorWatch() {
    const std::scoped_lock lock(mutex);
    TORCH_CHECK(!std::exchange(watching, true), "one OperatorWatch at a time");
    names.clear();
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(on_operator).scopes({at::RecordScope::FUNCTION}));
  }
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch() {
    at::removeCallback(handle_);
    const std::scoped_lock lock(mutex);
    watching = false;
  }

  /// Their names, such as "aten::mul".
  std::set<std::string> called() const {
    const std::scoped_lock lock(mutex);
    return names;
  }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
    if (call.operator_name().has_value()) {  // else an autograd function, named by whoever wrote it
      const std::scoped_lock lock(mutex);
      names.insert(call.name());
    }
    return nullptr;
  }

  // A callback is a plain function, so its state is of the class.
  inline static std::mutex mutex;  // backward may run on its own threads
  inline static bool watching = false;
  inline static std::set<std::string> names;
  at::CallbackHandle handle_;
};

}  // namespace ddp::testing
