#include "experiments/all_stages/smoke_test.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "ddp/gradient_synchronizer.h"
#include "ddp/models/toy_models.h"

namespace ddp {
namespace {

constexpr double kTolerance = 1e-6;  // of float64, but of a GPU's, too

// A function's static, so that it is there before the first registration.
std::vector<SmokeTest>& registry() {
  static std::vector<SmokeTest> tests;
  return tests;
}

}  // namespace

bool register_smoke_test(SmokeTest test) {
  registry().push_back(std::move(test));
  return true;
}

std::vector<SmokeTest> smoke_tests() {
  std::vector<SmokeTest> tests = registry();
  std::ranges::sort(tests, {}, &SmokeTest::stage);
  return tests;
}

void expect_equal(const std::string& what, const at::Tensor& found, const at::Tensor& expected) {
  TORCH_CHECK(found.defined(), what, " is undefined");
  TORCH_CHECK(at::allclose(found, expected, kTolerance, kTolerance), what,
              " is not what one process computes for all ranks: they differ by ",
              (found - expected).abs().max().item<double>());
}

void train_toy(const DeviceContext& device_context, const MakeSynchronizer& make) {
  const int rank = device_context.group->getRank();
  const int world_size = device_context.group->getSize();
  ToyOptions options = {.device = device_context.device};
  const auto whole =
      make_toy_model(ToyKind::kMlp, options);  // of one process, from rank 0's weights
  for (int each = 0; each < world_size; ++each) {
    (toy_loss(*whole, make_toy_batch(options, each, /*step=*/0)) / world_size).backward();
  }
  const Batch batch = make_toy_batch(options, rank, /*step=*/0);
  options.seed = rank;
  const auto model = make_toy_model(ToyKind::kMlp, options);
  const auto synchronizer = make(*model, device_context.group);
  toy_loss(*model, batch).backward();
  synchronizer->finish();
  const auto expected = whole->named_parameters();
  const auto found = model->named_parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, parameter] = expected[i];
    expect_equal(name + " after construction", found[i].tensor, parameter);
    expect_equal("the gradient of " + name, found[i].tensor.grad(), parameter.grad());
  }
}

}  // namespace ddp
