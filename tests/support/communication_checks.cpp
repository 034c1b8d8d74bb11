#include "support/communication_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

namespace ddp::testing {

namespace {

// A barrier has no data, and so no dtype.
std::string dtype_of(const RecordedOperation& operation) {
  return operation.dtype == at::ScalarType::Undefined ? "nothing"
                                                      : c10::getDtypeNames(operation.dtype).first;
}

}  // namespace

std::string list_of(const std::vector<RecordedOperation>& operations) {
  std::ostringstream out;
  for (const RecordedOperation& operation : operations) {
    out << "\n    " << operation_name(operation.type) << " of " << operation.name << ", "
        << operation.bytes << " bytes of " << dtype_of(operation);
  }
  return operations.empty() ? " nothing" : out.str();
}

std::vector<RecordedOperation> all_reduces(const std::vector<RecordedOperation>& operations) {
  std::vector<RecordedOperation> found;
  bool only_these = true;
  for (const RecordedOperation& operation : operations) {
    if (operation.is_all_reduce()) {
      found.push_back(operation);
    } else {
      only_these = only_these && operation.bytes == 0;
    }
  }
  if (!only_these) {
    ADD_FAILURE() << "gradients should be communicated by all-reduce only; here it was:"
                  << list_of(operations);
  }
  return found;
}

std::vector<std::int64_t> payloads(const std::vector<RecordedOperation>& operations) {
  std::vector<std::int64_t> bytes;
  bytes.reserve(operations.size());
  for (const RecordedOperation& operation : operations) {
    bytes.push_back(operation.bytes);
  }
  return bytes;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<std::int64_t> gradient_bytes(const std::vector<NamedTensor>& parameters) {
  std::vector<std::int64_t> bytes;
  bytes.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) {
    bytes.push_back(static_cast<std::int64_t>(parameter.tensor.nbytes()));
  }
  return bytes;
}

void expect_silence(Rank& rank, const std::string& when) {
  const auto operations = rank.recorder().operations();
  EXPECT_TRUE(operations.empty()) << when << " communicated:" << list_of(operations);
}

void expect_same_order_everywhere(Rank& rank, const std::vector<RecordedOperation>& operations) {
  std::ostringstream order;
  for (const RecordedOperation& operation : operations) {
    order << operation_name(operation.type) << " " << operation.bytes << " " << dtype_of(operation)
          << ", ";
  }
  const at::Tensor mine = at::scalar_tensor(
      static_cast<std::int64_t>(std::hash<std::string>{}(order.str())), at::kLong);
  const at::Tensor all = all_gather(mine.to(settings().device), rank.group());
  EXPECT_TRUE(all.eq(all[0]).all().item<bool>())
      << "the order of the all-reduces is not the same on all ranks; here it was:"
      << list_of(operations);
}

}  // namespace ddp::testing
