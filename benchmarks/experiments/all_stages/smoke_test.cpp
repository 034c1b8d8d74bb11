#include "experiments/all_stages/smoke_test.h"

#include <algorithm>
#include <utility>

#include "ddp/gradient_synchronizer.h"
#include "ddp/models/toy_models.h"

namespace ddp {
namespace {

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

void train_toy(const DeviceContext& device_context, const MakeSynchronizer& make) {
  const ToyOptions options = {.device = device_context.device};
  const auto model = make_toy_model(ToyKind::kMlp, options);
  const auto synchronizer = make(*model, device_context.group);
  const int rank = device_context.group->getRank();
  toy_loss(*model, make_toy_batch(options, rank, /*step=*/0)).backward();
  synchronizer->finish();
}

}  // namespace ddp
