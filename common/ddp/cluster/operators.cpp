#include "ddp/cluster/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string_view>
#include <utility>

namespace ddp::cluster {

namespace {

// A key that libtorch itself has no kernels for. It comes after autograd's, so that each operator
// that autograd calls is seen, and those that are only a name for several others are seen as these.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

thread_local const DataListener* current_listener = nullptr;

bool only_allocates(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
         name == "aten::resize_" || name == "aten::set_" || name == "aten::_unsafe_view";
}

// Takes no more than the shape of its arguments.
bool only_imitates(std::string_view name) {
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

bool only_overwrites(std::string_view name) {
  return name == "aten::copy_" || name == "aten::zero_" || name == "aten::fill_";
}

template <typename Visit>
void for_each_meta_tensor(const c10::IValue& value, const Visit& visit) {
  const auto visit_meta = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_meta()) {
      visit(tensor);
    }
  };
  if (value.isTensor()) {
    visit_meta(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit_meta(tensor);
    }
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

void add_arguments(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                   DataMovement& movement) {
  if (only_imitates(schema.name())) {
    return;
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool written = is_written(argument);
    const bool read = !(written && (argument.is_out() || only_overwrites(schema.name())));
    for_each_meta_tensor(arguments[i], [&](const at::Tensor& tensor) {
      movement.bytes += static_cast<std::int64_t>(tensor.nbytes()) * (int{written} + int{read});
    });
  }
}

void add_results(c10::ArrayRef<c10::IValue> results, const c10::FunctionSchema& schema,
                 DataMovement& movement) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (schema.returns()[i].alias_info() == nullptr) {
      for_each_meta_tensor(results[i], [&](const at::Tensor& tensor) {
        movement.bytes += static_cast<std::int64_t>(tensor.nbytes());
        forbid_memory(tensor);
      });
    }
  }
}

// A view's result is its argument in another form.
bool is_view(const c10::FunctionSchema& schema) {
  bool any = false;
  for (const c10::Argument& result : schema.returns()) {
    any = any || (result.alias_info() != nullptr && !result.alias_info()->isWrite());
  }
  return any;
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  try {
    op.redispatchBoxed(below, stack);
  } catch (const c10::NotImplementedError&) {
    TORCH_CHECK(false, op.schema().name(),
                " needs values, or libtorch cannot do it without: ", kNoValues);
  }
}

void watch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const c10::FunctionSchema& schema = op.schema();
  if (current_listener == nullptr || !schema.name().starts_with("aten::")) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    return;
  }
  DataMovement movement{.name = schema.name().c_str(), .bytes = 0};
  add_arguments(schema, torch::jit::last(*stack, schema.arguments().size()), movement);
  run(op, keys, stack);
  const bool allocates = only_allocates(schema.name());
  add_results(torch::jit::last(*stack, schema.returns().size()), schema, movement);
  if (!allocates && !is_view(schema) && movement.bytes > 0) {
    (*current_listener)(movement);
  }
}

// Once in a process; without an OperatorWatch no operator has the key.
void register_watch() {
  static const torch::Library fallback = [] {
    torch::Library library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
    return library;
  }();
}

}  // namespace

OperatorWatch::OperatorWatch(DataListener listener)
    : listener_(std::move(listener)), included_((register_watch(), kKey)) {
  TORCH_CHECK(current_listener == nullptr, "one OperatorWatch at a time on a thread");
  current_listener = &listener_;
}

OperatorWatch::~OperatorWatch() { current_listener = nullptr; }

void forbid_memory(const at::Tensor& meta) {
  if (meta.has_storage()) {
    meta.storage().unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
  }
}

bool is_memory_error(const c10::Error& error) {
  const std::string_view text = error.msg();
  return text.starts_with("Cannot access data pointer of Tensor") ||
         text.starts_with("The tensor has a non-zero number of elements, but its data is not");
}

namespace {

// c10d's kernel for CPU tensors only hands them to the group's backend for the CPU.
void as_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

}  // namespace

void allow_meta_collectives() {
  static const torch::Library kernels = [] {
    torch::Library library(torch::Library::IMPL, "c10d", c10::DispatchKey::Meta, __FILE__,
                           __LINE__);
    for (const char* operation :
         {"allreduce_", "allreduce_coalesced_", "allgather_", "_allgather_base_",
          "allgather_into_tensor_coalesced_", "alltoall_", "alltoall_base_", "broadcast_",
          "gather_", "recv_", "reduce_", "reduce_scatter_", "_reduce_scatter_base_",
          "reduce_scatter_tensor_coalesced_", "scatter_", "send"}) {
      library.impl(operation, torch::CppFunction::makeFromBoxedFunction<&as_on_cpu>());
    }
    return library;
  }();
}

}  // namespace ddp::cluster
