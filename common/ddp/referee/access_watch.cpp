#include "ddp/referee/access_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <unordered_map>
#include <vector>

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

// What an operator does with an argument's memory.
enum class Access { kNone, kRead, kWrite };

// By argument; nothing for what is no operator. Of each operator once in a thread, by its name, which
// lies in the schema that the dispatcher keeps: finding that takes as long as a small operator.
const std::vector<Access>* accesses_of(const at::RecordFunction& call) {
  thread_local std::unordered_map<const char*, std::vector<Access>> known;
  if (const auto found = known.find(call.name()); found != known.end()) {
    return &found->second;
  }
  const auto name = call.operator_name();
  const auto found = name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
  if (!found || found->schema().name().c_str() != call.name()) {
    return nullptr;
  }
  std::vector<Access>& accesses = known[call.name()];
  for (const c10::Argument& argument : found->schema().arguments()) {
    accesses.push_back(touches_no_memory(found->schema(), argument) ? Access::kNone
                       : argument.alias_info() != nullptr           ? Access::kWrite
                                                                    : Access::kRead);
  }
  return &accesses;
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
  const std::vector<Access>* accesses = watcher != nullptr ? accesses_of(call) : nullptr;
  if (accesses == nullptr) {
    return nullptr;
  }
  const auto inputs = call.inputs();
  for (std::size_t i = 0; i < inputs.size() && i < accesses->size(); ++i) {
    if ((*accesses)[i] == Access::kNone) {
      continue;
    }
    const bool writes = (*accesses)[i] == Access::kWrite;
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
