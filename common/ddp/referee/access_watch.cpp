#include "ddp/referee/access_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

// How ATen's operators are observed: a RecordFunction callback, which sees each call's arguments
// and schema.

namespace ddp {

namespace {

// A callback is a plain function, so the listener must be global.
AccessListener* watcher = nullptr;

// True if the operator only looks at the tensor's shape and dtype, or makes a view of it.
bool touches_no_memory(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  const bool is_view = argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
  const std::string& name = schema.name();
  const bool is_like = name.ends_with("_like") || name.rfind("aten::new_", 0) == 0;
  return is_view || is_like || name.rfind("c10d::", 0) == 0;
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
  const auto name = call.operator_name();  // operator_schema() would be a copy, at each call
  if (watcher == nullptr || !name.has_value()) {
    return nullptr;
  }
  const auto found = c10::Dispatcher::singleton().findSchema(*name);
  if (!found.has_value()) {
    return nullptr;
  }
  const c10::FunctionSchema& schema = found->schema();
  const auto inputs = call.inputs();
  for (std::size_t i = 0; i < inputs.size() && i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (touches_no_memory(schema, argument)) {
      continue;
    }
    const bool writes = argument.alias_info() != nullptr;
    if (inputs[i].isTensor()) {
      watcher->note_access(inputs[i].toTensor(), writes, call.name());
    } else if (inputs[i].isTensorList()) {
      for (const at::Tensor& tensor : inputs[i].toTensorVector()) {
        watcher->note_access(tensor, writes, call.name());
      }
    }
  }
  return nullptr;
}

}  // namespace

AccessWatch::AccessWatch(AccessListener& listener) {
  TORCH_CHECK(watcher == nullptr, "one AccessWatch at a time");
  watcher = &listener;
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(on_operator)
                                      .needsInputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

AccessWatch::~AccessWatch() {
  at::removeCallback(handle_);
  watcher = nullptr;
}

}  // namespace ddp
