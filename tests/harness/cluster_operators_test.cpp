// Which operators move data on the simulated cluster, how much, and what is refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sstream>

#include "ddp/cluster/cluster.h"
#include "ddp/cluster/operators.h"
#include "harness/checks.h"
#include "support/ranks.h"

namespace ddp::cluster {

namespace {

using ddp::testing::expect_contains;

constexpr std::int64_t kWidth = 100;
const auto kMeta = at::TensorOptions(at::kMeta).dtype(at::kFloat);

at::Tensor tensor() { return at::empty({kWidth}, kMeta); }

// "name bytes; " of each operator that moved data.
template <typename Body>
std::string moved_by(const Body& body) {
  std::ostringstream told;
  const OperatorWatch watch([&](const DataMovement& movement) {
    told << movement.name << " " << movement.bytes << "; ";
  });
  body();
  return told.str();
}

CHILD_TEST(OperatorWatch, CountsWhatIsReadAndWritten) {
  const at::Tensor a = tensor(), b = tensor();
  const std::vector<std::pair<std::string, std::string>> expected = {
      {moved_by([&] { a.copy_(b); }), "aten::copy_ 800; "},
      {moved_by([&] { a.zero_(); }), "aten::zero_ 400; "},
      {moved_by([&] { a.fill_(1); }), "aten::fill_ 400; "},
      {moved_by([&] { a.div_(8); }), "aten::div_ 800; "},
      {moved_by([&] { a.add_(b); }), "aten::add_ 1200; "},
      {moved_by([&] {
         at::cat({a, b});
       }),
       "aten::cat 1600; "},
      {moved_by([&] { a + b; }), "aten::add 1200; "},
      {moved_by([&] { a.clone(); }), "aten::clone 800; "},
      {moved_by([&] { at::zeros({kWidth}, kMeta); }), "aten::zeros 400; "},
      {moved_by([&] { at::zeros_like(a); }), "aten::zeros_like 400; "},
      {moved_by([&] { at::mul_out(const_cast<at::Tensor&>(a), b, b); }), "aten::mul 1200; "},
      {moved_by([&] {
         at::_foreach_div_({a, b}, 2);
       }),
       "aten::_foreach_div_ 1600; "},
      {moved_by([&] { a.narrow(0, 10, 20).copy_(b.narrow(0, 0, 20)); }), "aten::copy_ 160; "},
  };
  for (const auto& [told, wanted] : expected) {
    EXPECT_EQ(told, wanted);
  }
}

CHILD_TEST(OperatorWatch, ViewsAndAllocationsAreFree) {
  const at::Tensor a = tensor();
  EXPECT_EQ(moved_by([&] {
              a.view({10, 10}).t().narrow(0, 0, 5);
              a.detach();
              a.reshape({-1});
              a.contiguous();
              a.view_as(a).select(0, 1).unsqueeze(0).expand({7});
              at::empty({5}, kMeta);
              at::empty_like(a);
              a.new_empty({3});
            }),
            "");
  EXPECT_EQ(moved_by([&] { at::zeros({5}).add_(1); }), "") << "computed by the host";
}

// One that is made of others is one; what only stands for others is these.
CHILD_TEST(OperatorWatch, CompositesCountOnce) {
  const at::Tensor strided = at::empty({10, 10}, kMeta).t();
  EXPECT_EQ(moved_by([&] { strided.contiguous(); }), "aten::clone 800; ");
  EXPECT_EQ(moved_by([&] { strided.reshape({-1}); }), "aten::clone 800; ");
  const at::Tensor needs_gradient = tensor().set_requires_grad(true);
  EXPECT_EQ(moved_by([&] { needs_gradient * 2; }), "aten::mul 800; ");
}

CHILD_TEST(OperatorWatch, SeesWhatAutogradCalls) {
  const at::Tensor weight = tensor().set_requires_grad(true);
  const at::Tensor product = weight * 2;
  EXPECT_EQ(moved_by([&] { product.backward(at::empty_like(product)); }), "aten::mul 800; ");
  weight.mutable_grad() = tensor();
  EXPECT_EQ(moved_by([&] {
              (weight.view({10, 10})).backward(at::empty({10, 10}, kMeta));
            }),
            "aten::add_ 1200; ")
      << "added to the gradient that is there";
}

CHILD_TEST(OperatorWatch, OneAtATime) {
  EXPECT_EQ(moved_by([] {
              EXPECT_THROW(OperatorWatch([](const DataMovement&) {}), c10::Error);
              tensor().zero_();
            }),
            "aten::zero_ 400; ");
}

template <typename Body>
std::string refusal(const Body& body) {
  Cluster cluster(bare_network(2, {}));
  return ddp::testing::error_of([&] { cluster.run(body); });
}

CHILD_TEST(OperatorWatch, ValuesAreRefusedByOperatorAndLine) {
  const auto expect = [](const std::string& text, const std::string& begin) {
    EXPECT_TRUE(text.starts_with(begin)) << text;
    expect_contains(text, "on the simulated cluster tensors have shapes and no values");
    EXPECT_NE(text.find("(tests/harness/cluster_operators_test.cpp:"), std::string::npos) << text;
  };
  expect(refusal([] { at::zeros({1}, kMeta).item<float>(); }), "aten::_local_scalar_dense");
  expect(refusal([] { at::zeros({1}, kMeta).data_ptr<float>(); }), "data_ptr()");
  expect(refusal([] { at::zeros({1}, kMeta).const_data_ptr<float>(); }), "data_ptr()");
  expect(refusal([] { at::zeros({1}, kMeta).data_ptr(); }), "data_ptr()");
  expect(refusal([] { at::is_nonzero(at::zeros({1}, kMeta)); }), "aten::_local_scalar_dense");
  expect(refusal([] { std::ostringstream() << at::zeros({1}, kMeta); }), "aten::");
  expect(refusal([] { at::zeros({1}, kMeta).cpu(); }), "aten::_to_copy");
  expect(refusal([] {
           at::index_select(at::zeros({4}, kMeta), 0, at::zeros({1}, kMeta.dtype(at::kLong)));
         }),
         "aten::index_select");
}

}  // namespace

}  // namespace ddp::cluster
