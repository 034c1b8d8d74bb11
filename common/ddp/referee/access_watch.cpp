#include "ddp/referee/access_watch.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>
#include <vector>

// How ATen's operators are observed: a RecordFunction callback, which sees each call's arguments
// and schema.

namespace ddp {

namespace {

// A callback is a plain function, so the listener must be global. Any thread may run operators when it
// begins or ends.
std::atomic<AccessListener*> watcher{nullptr};

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
  AccessListener* const listener = watcher;
  const std::vector<Access>* accesses = listener != nullptr ? accesses_of(call) : nullptr;
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
      listener->note_access(inputs[i].toTensor(), writes, call.name());
    } else if (inputs[i].isTensorList()) {
      for (const at::Tensor& tensor : inputs[i].toTensorVector()) {
        listener->note_access(tensor, writes, call.name());
      }
    }
  }
  return nullptr;
}

}  // namespace

AccessWatch::AccessWatch(AccessListener& listener) {
  TORCH_CHECK(watcher.exchange(&listener) == nullptr, "one AccessWatch at a time");
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(on_operator)
                                      .needsInputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

AccessWatch::~AccessWatch() {
  at::removeCallback(handle_);
  watcher = nullptr;
}

namespace {

// Signalling NaNs: the top bit of the mantissa is 0. An operation's number fills the k*Number bits;
// the others, the mark, stay set when the NaN becomes quiet. A double's mantissa begins as a
// float's, so a conversion keeps mark and number; those of half and bfloat16 have no mark.
constexpr std::uint32_t kFloatBits = 0x7FA00000;
constexpr std::uint32_t kFloatNumber = 0x001FFFFF;
constexpr std::uint64_t kDoubleBits = 0x7FF4000000000000;
constexpr int kDoubleShift = 29;  // bits that a double has and a float has not
constexpr std::uint16_t kHalfBits = 0x7C55;
constexpr std::uint16_t kBFloat16Bits = 0x7F95;

// The bits of a poisoned element; its size is the dtype's.
std::uint64_t pattern(at::ScalarType dtype, std::int64_t operation) {
  const auto number = static_cast<std::uint64_t>(operation);
  switch (dtype) {
    case at::kFloat:
    case at::kComplexFloat:
      return kFloatBits | (number & kFloatNumber);
    case at::kDouble:
    case at::kComplexDouble:
      return kDoubleBits | (number & kFloatNumber) << kDoubleShift;
    case at::kHalf:
      return kHalfBits;
    case at::kBFloat16:
      return kBFloat16Bits;
    default:
      return 0x01D9D9D9D9D9D901;  // its lowest byte is a legal bool
  }
}

// The size of the repeated pattern: a complex number is two floats.
std::size_t unit_size(const at::Tensor& tensor) {
  return tensor.is_complex() ? tensor.element_size() / 2 : tensor.element_size();
}

}  // namespace

void poison(const at::Tensor& tensor, std::int64_t operation) {
  const std::uint64_t bits = pattern(tensor.scalar_type(), operation);
  const std::size_t unit = unit_size(tensor);
  const std::size_t bytes = tensor.nbytes();
  auto* data = static_cast<char*>(tensor.data_ptr());
  for (std::size_t at = 0; at < bytes; at += unit) {
    std::memcpy(data + at, &bits, unit);  // little-endian, as every machine that libtorch supports
  }
}

std::optional<std::int64_t> first_unpoisoned(const at::Tensor& tensor, std::int64_t operation,
                                             std::size_t bytes) {
  const std::uint64_t bits = pattern(tensor.scalar_type(), operation);
  const std::size_t unit = unit_size(tensor);
  const std::size_t end = std::min(bytes, tensor.nbytes());
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  for (std::size_t at = 0; at < end; at += unit) {
    if (std::memcmp(data + at, &bits, unit) != 0) {
      return static_cast<std::int64_t>(at / tensor.element_size());
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> find_poison(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble) {
    return std::nullopt;
  }
  const at::Tensor dense = tensor.to(at::kFloat).contiguous();
  const auto* data = static_cast<const char*>(dense.const_data_ptr());
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
    const std::uint32_t number = bits & kFloatNumber;
    // All ones is what libtorch makes of a half that is no number.
    if ((bits & kFloatBits) == kFloatBits && number != kFloatNumber) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

}  // namespace ddp
