#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "claims.h"
#include "grader/toy_scenarios.h"
#include "scenarios.h"

// The purpose of the ring: a model's gradients.

namespace ddp::testing {

namespace {

// The simplest data-parallel training: finish() averages one gradient after another with the ring,
// each in its own tensor or in its place in one flat buffer.
class RingSynchronizer : public GradientSynchronizer {
 public:
  RingSynchronizer(const std::vector<at::Tensor>& parameters, ProcessGroupPtr group, bool flat)
      : group_(std::move(group)) {
    for (const at::Tensor& parameter : parameters) {
      broadcast(parameter.detach(), group_);
    }
    std::int64_t elements = 0;
    for (const at::Tensor& parameter : parameters) {
      const bool seen =
          std::ranges::any_of(parameters_, [&](const auto& p) { return p.is_same(parameter); });
      if (parameter.requires_grad() && !seen) {
        parameters_.push_back(parameter);
        elements += parameter.numel();
      }
    }
    if (flat) {
      buffer_ = at::zeros({elements}, parameters[0].options().requires_grad(false));
    }
  }

  void finish() override {
    std::int64_t begin = 0;
    for (const at::Tensor& parameter : parameters_) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (!gradient.defined()) {
        gradient = at::zeros_like(parameter);
      }
      if (buffer_.defined()) {
        const at::Tensor place =
            buffer_.narrow(0, begin, parameter.numel()).view(parameter.sizes());
        place.copy_(gradient);
        gradient = place;
      }
      begin += parameter.numel();
      ring_all_reduce(gradient, group_, ReduceOp::kAverage);
    }
  }

 private:
  std::vector<at::Tensor> parameters_;
  ProcessGroupPtr group_;
  at::Tensor buffer_;  // [elements of all gradients]; undefined: each in its own tensor
};

const ToyModels kModels = {{ToyKind::kMlp, ToyKind::kTiedWeights, ToyKind::kRankBranch},
                           {at::kFloat}};

}  // namespace

std::vector<Scenario> training_scenarios_of_ring(const std::string& charged_to) {
  std::vector<Scenario> all;
  for (const auto& [ranks, flat] : {std::pair(2, false), {1, true}, {3, true}}) {
    const Factory ring = [flat = flat](Client&, const std::vector<at::Tensor>& parameters,
                                       const std::vector<at::Tensor>&,
                                       const ProcessGroupPtr& group) {
      return std::make_unique<RingSynchronizer>(parameters, group, flat);
    };
    all.push_back(toy_scenario(ranks, kModels, ring, charged_to));
    // Whatever the models are: the ring sees tensors.
    all.back().edge_cases = with_ranks({}, ranks);
    all.back().name += flat ? ", gradients in one buffer" : ", each gradient in its own tensor";
  }
  return all;
}

Predicate ring_trains() { return training_ends_at_the_oracle(kModels); }

}  // namespace ddp::testing
