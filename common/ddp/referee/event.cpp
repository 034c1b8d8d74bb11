#include "ddp/referee/event.h"

#include <regex>

#include "ddp/backends/operation_backend.h"
#include "ddp/libtorch_versions.h"

namespace ddp {

namespace {

const char* reduce_op_name(c10d::ReduceOp::RedOpType op) {
  static constexpr const char* kNames[] = {"sum",        "average",     "product",
                                           "minimum",    "maximum",     "bitwise and",
                                           "bitwise or", "bitwise xor", "premultiplied sum"};
  return op < std::size(kNames) ? kNames[op] : nullptr;
}

}  // namespace

std::string describe_operation(const Event& launch) {
  std::string text = operation_name(launch.type) + " #" + std::to_string(launch.operation);
  if (!launch.text.empty()) {
    text.append(" of ").append(launch.text);
  }
  const std::string tag = launch.tag != 0 ? ", tag " + std::to_string(launch.tag) : "";
  return text + " (" + std::to_string(launch.bytes) + (launch.bytes == 1 ? " byte" : " bytes") +
         tag + ")";
}

std::string describe_agreement(const Event& launch) {
  std::string text = operation_name(launch.type);
  if (const char* op = reduce_op_name(launch.reduce_op)) {
    text.append(" (").append(op).append(")");
  }
  if (launch.peer >= 0) {
    const bool message = c10d::isP2POp(launch.type);
    text += (launch.type == c10d::OpType::SEND ? " to rank "
             : message                         ? " from rank "
                                               : " with root ") +
            std::to_string(launch.peer);
  }
  if (launch.tensors > 0) {
    text.append(" of ").append(launch.text).append(", ");
    text.append(dtype_name(launch.dtype)).append(" ").append(launch.shape);
  }
  return text;
}

void withhold_names(Event& event) {
  static const std::regex plain(
      "(the gradients? of )?((layer|buffer|unit|parameter) \\d{1,3}|\\w{1,6}\\.(weight|bias))"
      "( and \\d{1,3} others?)?|a tensor \\w{1,12} \\[[\\d, ]*\\]");
  static const std::regex sizes("[\\d, \\[\\]]*");
  const bool of_operation = event.kind == EventKind::kLaunch || event.kind == EventKind::kTouch;
  if (of_operation && !event.text.empty() && !std::regex_match(event.text, plain)) {
    event.text = "a tensor";
  }
  if (!std::regex_match(event.shape, sizes)) {
    event.shape.clear();
  }
}

bool is_plain(at::ScalarType dtype) {
  return at::isIntegralType(dtype, /*includeBool=*/true) || at::isFloatingType(dtype) ||
         at::isComplexType(dtype);
}

bool is_all_reduce(const Event& launch) {
  return launch.kind == EventKind::kLaunch && (launch.type == c10d::OpType::ALLREDUCE ||
                                               launch.type == c10d::OpType::ALLREDUCE_COALESCED);
}

bool is_reduce_scatter(const Event& launch) {
  return launch.kind == EventKind::kLaunch && (launch.type == c10d::OpType::REDUCE_SCATTER ||
                                               launch.type == c10d::OpType::_REDUCE_SCATTER_BASE);
}

bool is_all_gather(const Event& launch) {
  return launch.kind == EventKind::kLaunch &&
         (launch.type == c10d::OpType::ALLGATHER || launch.type == c10d::OpType::_ALLGATHER_BASE ||
          launch.type == c10d::OpType::ALLGATHER_COALESCED);
}

}  // namespace ddp
