#include "harness/equal_gradients.h"

#include <ATen/ATen.h>

#include "harness/variants.h"

namespace ddp {
namespace {

constexpr double kTolerance = 1e-3;  // of a gradient's largest value

struct Expected {
  std::string peer;
  std::vector<at::Tensor> gradients;
};

void expect_equal(const std::string& variant, const Trainer& trainer, const Expected& expected) {
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const auto& [name, parameter] = trainer.parameters()[i];
    TORCH_CHECK(parameter.grad().defined(), variant, " leaves ", name, " without a gradient");
    const at::Tensor& gradient = expected.gradients[i];
    const double largest = gradient.abs().max().item<double>();
    const double difference = (parameter.grad() - gradient).abs().max().item<double>();
    TORCH_CHECK(difference <= kTolerance * largest, variant, "'s gradient of ", name, " is not ",
                expected.peer, "'s: they differ by ", difference, ", and the largest value is ",
                largest, ". There is no point in measuring it; `make test STAGE=",
                stage_of(variant).substr(0, 2), "` says more");
  }
}

}  // namespace

void check_gradients(const std::vector<std::string>& variants, std::vector<Trainer>& trainers,
                     std::size_t peer, const LabelledBatch& batch) {
  for (Trainer& trainer : trainers) {
    trainer.backward(trainer.forward(batch));
    trainer.finish();
  }
  Expected expected = {.peer = variants[peer], .gradients = {}};
  expected.gradients.reserve(trainers[peer].parameters().size());
  for (const NamedTensor& parameter : trainers[peer].parameters()) {
    expected.gradients.push_back(parameter.tensor.grad());
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (variants[i] != kComputeOnly) {
      expect_equal(variants[i], trainers[i], expected);
    }
  }
  for (Trainer& trainer : trainers) {
    trainer.update();
  }
}

}  // namespace ddp
