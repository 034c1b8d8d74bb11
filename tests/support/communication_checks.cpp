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

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
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
