#include "support/operator_watch.h"

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <mutex>

namespace ddp::testing {

namespace {

struct Names {
  std::mutex mutex;  // backward may run on its own threads
  bool watching = false;
  std::set<std::string> called;
};

// A callback is a plain function, so its state has to be global.
Names& names() {
  static Names all;
  return all;
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
  if (!call.operator_name().has_value()) {  // an autograd function, named by whoever wrote it
    return nullptr;
  }
  const std::scoped_lock lock(names().mutex);
  names().called.insert(call.name());
  return nullptr;
}

}  // namespace

OperatorWatch::OperatorWatch() {
  {
    const std::scoped_lock lock(names().mutex);
    TORCH_CHECK(!names().watching, "one OperatorWatch at a time");
    names().watching = true;
    names().called.clear();
  }
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(on_operator).scopes({at::RecordScope::FUNCTION}));
}

OperatorWatch::~OperatorWatch() {
  at::removeCallback(handle_);
  const std::scoped_lock lock(names().mutex);
  names().watching = false;
}

std::set<std::string> OperatorWatch::called() const {
  const std::scoped_lock lock(names().mutex);
  return names().called;
}

}  // namespace ddp::testing
