#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/checks.h"
#include "ddp/referee/access_watch.h"
#include "grader/compare.h"

namespace ddp {
namespace {

const std::vector<at::ScalarType> kDtypes = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,     at::kLong,         at::kInt,
    at::kChar,  at::kByte,   at::kBool, at::kComplexFloat, at::kComplexDouble};

CHILD_TEST(Poison, EveryDtypeKeepsItUntilWritten) {
  for (const auto dtype : kDtypes) {
    const at::Tensor tensor = at::zeros({5}, dtype);
    poison(tensor, 7);
    EXPECT_EQ(first_unpoisoned(tensor, 7), std::nullopt) << dtype;
    tensor[3].zero_();
    EXPECT_EQ(first_unpoisoned(tensor, 7), 3) << dtype;
  }
}

CHILD_TEST(Poison, ArithmeticInPlaceShows) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
    const std::vector<std::function<void(const at::Tensor&)>> writes = {
        [](const at::Tensor& t) { t.add_(1); },
        [](const at::Tensor& t) { t.mul_(2); },
        [](const at::Tensor& t) { t.add_(at::ones_like(t)); },
    };
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const at::Tensor tensor = at::zeros({33}, dtype);
      poison(tensor, 1);
      writes[i](tensor);
      EXPECT_EQ(first_unpoisoned(tensor, 1), 0) << dtype << ", write " << i;
    }
  }
}

CHILD_TEST(Poison, ResultsTellTheOperation) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t operation : {0, 1, 12'345}) {
      const at::Tensor tensor = at::zeros({100}, dtype);
      poison(tensor, operation);
      EXPECT_EQ(find_poison(tensor), operation);
      EXPECT_EQ(find_poison(tensor * 3), operation);
      EXPECT_EQ(find_poison(at::ones({100}, dtype) + tensor), operation);
      EXPECT_EQ(find_poison(tensor.sum()), operation);
      EXPECT_EQ(find_poison(tensor.to(at::kFloat)), operation);
      EXPECT_EQ(find_poison(tensor.to(at::kDouble)), operation);
    }
  }
}

CHILD_TEST(Poison, OrdinaryValuesAreNone) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const at::Tensor values =
        at::tensor({0.0, 1.0, -1.0, infinity, -infinity, nan, -nan, infinity - infinity}, dtype);
    EXPECT_EQ(find_poison(values), std::nullopt);
    EXPECT_EQ(find_poison(values - values), std::nullopt);
  }
}

CHILD_TEST(Poison, NarrowDtypesTellNoWrongOperation) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor tensor = at::zeros({4}, dtype);
    poison(tensor, 3);
    EXPECT_TRUE(tensor.isnan().all().item<bool>()) << dtype;
    EXPECT_EQ(find_poison(tensor.to(at::kFloat)), std::nullopt) << dtype;
  }
}

CHILD_TEST(Poison, ComparisonsNameIt) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor tensor = at::zeros({4}, dtype);
    poison(tensor, 3);
    const auto result = testing::is_close({.name = "w"}, tensor + 1, at::ones({4}, dtype), 1.0);
    EXPECT_FALSE(result);
    testing::expect_contains(result.message(), "in flight in operation #3");
  }
}

}  // namespace
}  // namespace ddp
