#include <ATen/ATen.h>

#include "norm_case.h"

// Diagnoses of wrong results: those that equal the result of a typical mistake.

namespace ddp::testing {

namespace {

constexpr const char* kOwnStatistics = "this rank's own statistics: not combined over the ranks?";

at::Tensor mean_of_channels(const at::Tensor& values) {
  return values.mean(without_channels(values), /*keepdim=*/true);
}

at::Tensor variance_of_channels(const at::Tensor& values) {
  return mean_of_channels((values - mean_of_channels(values)).square());
}

bool looks_like(const at::Tensor& actual, const at::Tensor& value) {
  const bool precise = actual.scalar_type() == at::kDouble;
  return actual.sizes() == value.sizes() &&
         at::allclose(actual.detach().to(at::kDouble), value, precise ? 1e-7 : 1e-4,
                      precise ? 1e-9 : 1e-5);
}

}  // namespace

std::string explain(const at::Tensor& actual, const at::Tensor& expected,
                    const std::vector<Suspicion>& suspicions) {
  if (actual.defined() && actual.numel() > 0) {
    for (const auto& [text, value] : suspicions) {
      if (looks_like(actual, value) && !looks_like(expected.to(actual.scalar_type()), value)) {
        return "\n  diagnosis: this is what comes of " + text;
      }
    }
  }
  return "";
}

std::vector<Suspicion> NormCase::suspicions_of_output() const {
  const at::Tensor x = shard(input_).to(at::kDouble);
  const at::Tensor centred = x - along_channels(expected_.mean, x);
  const auto normalized_by = [&](const at::Tensor& variance) {
    return with_affine(centred / (variance + options_.eps).sqrt());
  };
  const at::Tensor variance = along_channels(expected_.variance, x);
  // The ranks' variances, weighted by their counts.
  at::Tensor within = at::zeros_like(variance);
  std::int64_t row = 0;
  for (const std::int64_t rows : options_.rows) {
    const at::Tensor theirs = input_.narrow(0, row, rows).to(at::kDouble);
    within = rows > 0 ? within + variance_of_channels(theirs) * static_cast<double>(rows) : within;
    row += rows;
  }
  std::vector<Suspicion> suspicions = {
      {"the variances within the ranks alone: the means differ, too",
       normalized_by(within / static_cast<double>(input_.size(0)))},
      {"the unbiased variance: that is for the running one",
       normalized_by(variance * (expected_.count / (expected_.count - 1)))},
      {"eps added outside the root", with_affine(centred / (variance.sqrt() + options_.eps))},
      {"no weight and no bias", shard(expected_.normalized)}};
  if (x.numel() > 0) {
    const at::Tensor local =
        (x - mean_of_channels(x)) / (variance_of_channels(x) + options_.eps).sqrt();
    suspicions.insert(suspicions.begin(), {kOwnStatistics, with_affine(local)});
  }
  return suspicions;
}

std::vector<Suspicion> NormCase::suspicions_of_input_gradient() const {
  const at::Tensor g = shard(upstream_).to(at::kDouble);
  const at::Tensor x_hat = shard(expected_.normalized);
  at::Tensor factor = (expected_.variance + options_.eps).rsqrt();
  if (tensors.weight.defined()) {
    factor = factor * tensors.weight.detach();
  }
  const auto formula = [&](const at::Tensor& mean, const at::Tensor& mean_x_hat) {
    return along_channels(factor, g) * (g - mean - x_hat * mean_x_hat);
  };
  const at::Tensor upstream = upstream_.to(at::kDouble);
  const at::Tensor mean = mean_of_channels(upstream);
  const at::Tensor mean_x_hat = mean_of_channels(upstream * expected_.normalized);
  const at::Tensor zero = at::zeros_like(mean);
  std::vector<Suspicion> suspicions = {{"statistics taken for constants", formula(zero, zero)},
                                       {"a variance taken for a constant", formula(mean, zero)},
                                       {"a mean taken for a constant", formula(zero, mean_x_hat)}};
  const at::Tensor own = along_channels(sum_of_channels(g), g);
  const at::Tensor own_x_hat = along_channels(sum_of_channels(g * x_hat), g);
  const double own_count = static_cast<double>(g.numel()) / static_cast<double>(g.size(1));
  for (const double count : {expected_.count, own_count}) {
    suspicions.insert(
        suspicions.end(),
        {{"both sums over this rank's samples only", formula(own / count, own_x_hat / count)},
         {"sum(g) over this rank's samples only", formula(own / count, mean_x_hat)},
         {"sum(g x-hat) over this rank's samples only", formula(mean, own_x_hat / count)}});
  }
  const double ratio = expected_.count / own_count;
  suspicions.push_back({"division by this rank's count, not the global one",
                        formula(mean * ratio, mean_x_hat * ratio)});
  return suspicions;
}

std::vector<Suspicion> NormCase::suspicions_of_parameter_gradient(const at::Tensor& terms) const {
  const at::Tensor of_all = sum_of_channels(terms);
  return {{"the sum over all ranks: it should stay local, DDP averages it later", of_all},
          {"the mean over all ranks: it should stay local, DDP averages it later",
           of_all / world_size_}};
}

std::vector<Suspicion> NormCase::suspicions_of_running(const at::Tensor& before,
                                                       const at::Tensor& batch,
                                                       double momentum) const {
  const at::Tensor was = before.to(at::kDouble);
  const at::Tensor biased = batch * ((expected_.count - 1) / expected_.count);
  return {
      {"no update", was},
      {"the biased variance, divided by n and not by n - 1",
       was * (1 - momentum) + biased * momentum},
      {"momentum taken for the weight of the old value", was * momentum + batch * (1 - momentum)}};
}

}  // namespace ddp::testing
