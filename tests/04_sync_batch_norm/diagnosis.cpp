#include <ATen/ATen.h>

#include <algorithm>

#include "claims.h"

// What typical mistakes make of the tensors of a use.

namespace ddp::testing {

namespace {

using Suspicions = std::vector<Suspicion>;

at::Tensor mean_of_channels(const at::Tensor& values) {
  return values.mean(without_channels(values), /*keepdim=*/true);
}

at::Tensor variance_of_channels(const at::Tensor& values) {
  return mean_of_channels((values - mean_of_channels(values)).square());
}

double count_of(const at::Tensor& values) {
  return static_cast<double>(values.numel()) / static_cast<double>(values.size(1));
}

at::Tensor all_of_ranks(const Batch& batch, const std::string& name, Moment moment) {
  std::vector<at::Tensor> parts;
  for (const UseOnRank& use : batch) {
    parts.push_back(use.wide(name, moment));
  }
  return at::cat(parts);
}

at::Tensor weighted(const at::Tensor& x_hat, const UseOnRank& use) {
  const at::Tensor weight = use.wide("weight");
  const at::Tensor bias = use.wide("bias");
  const at::Tensor scaled = weight.defined() ? x_hat * along_channels(weight, x_hat) : x_hat;
  return bias.defined() ? scaled + along_channels(bias, x_hat) : scaled;
}

// The variance within the ranks, weighted by their counts.
at::Tensor variance_within(const Batch& batch) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  double count = 0;
  for (const UseOnRank& use : batch) {
    const at::Tensor theirs = use.wide("input");
    sum = theirs.numel() > 0 ? sum + variance_of_channels(theirs) * count_of(theirs) : sum;
    count += count_of(theirs);
  }
  return sum / count;
}

Suspicions of_output(const Batch& batch, const UseOnRank& use) {
  const at::Tensor x = use.wide("input");
  const Statistics statistics = statistics_of(batch);
  const at::Tensor centred = x - along_channels(statistics.mean, x);
  const at::Tensor variance = along_channels(statistics.variance, x);
  const auto by = [&](const at::Tensor& other) {
    return weighted(centred / (other + use.eps).sqrt(), use);
  };
  Suspicions all;
  if (x.numel() > 0) {
    const at::Tensor own = (x - mean_of_channels(x)) / (variance_of_channels(x) + use.eps).sqrt();
    all.push_back({use.training ? "this rank's own statistics: not combined over the ranks?"
                                : "this rank's own statistics, not the running ones",
                   weighted(own, use)});
  }
  const double count = statistics.count;
  if (count > 1) {
    all.push_back({"the variances within the ranks alone: the means differ, too",
                   by(variance_within(batch))});
    all.push_back({"the unbiased variance: that is for the running one",
                   by(variance * (count / (count - 1)))});
  }
  all.push_back(
      {"eps added outside the root", weighted(centred / (variance.sqrt() + use.eps), use)});
  all.push_back({"no weight and no bias", centred / (variance + use.eps).sqrt()});
  return all;
}

Suspicions of_input_gradient(const Batch& batch, const UseOnRank& use) {
  const Statistics statistics = statistics_of(batch);
  const at::Tensor g = use.wide("upstream", kAfterBackward);
  const auto normalized = [&](const at::Tensor& x) {
    return (x - along_channels(statistics.mean, x)) /
           along_channels((statistics.variance + use.eps).sqrt(), x);
  };
  const at::Tensor x_hat = normalized(use.wide("input"));
  at::Tensor factor = (statistics.variance + use.eps).rsqrt();
  factor = use.wide("weight").defined() ? factor * use.wide("weight") : factor;
  const auto formula = [&](const at::Tensor& mean, const at::Tensor& mean_x_hat) {
    return along_channels(factor, g) * (g - mean - x_hat * mean_x_hat);
  };
  const at::Tensor all_g = all_of_ranks(batch, "upstream", kAfterBackward);
  const at::Tensor mean = mean_of_channels(all_g);
  const at::Tensor mean_x_hat =
      mean_of_channels(all_g * normalized(all_of_ranks(batch, "input", kBefore)));
  const at::Tensor zero = at::zeros_like(mean);
  const double own_count = count_of(g);
  const double count = count_of(all_g);
  const at::Tensor own = mean_of_channels(g) * own_count;
  const at::Tensor own_x_hat = mean_of_channels(g * x_hat) * own_count;
  Suspicions all = {{"statistics taken for constants", formula(zero, zero)},
                    {"a variance taken for a constant", formula(mean, zero)},
                    {"a mean taken for a constant", formula(zero, mean_x_hat)}};
  for (const double n : {count, own_count}) {
    all.push_back({"both sums over this rank's samples only", formula(own / n, own_x_hat / n)});
    all.push_back({"sum(g) over this rank's samples only", formula(own / n, mean_x_hat)});
    all.push_back({"sum(g x-hat) over this rank's samples only", formula(mean, own_x_hat / n)});
  }
  const double ratio = count / own_count;
  all.push_back({"division by this rank's count, not the global one",
                 formula(mean * ratio, mean_x_hat * ratio)});
  return all;
}

// The values of all ranks add up to that of the batch.
Suspicions of_parameter_gradient(const Batch& batch, const std::string& name) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const UseOnRank& use : batch) {
    if (const Expected local = expected(batch, use, name); local.value.defined()) {
      sum = sum + local.value.to(at::kDouble);
    }
  }
  return {{"the sum over all ranks: it should stay local, DDP averages it later", sum},
          {"the mean over all ranks: it should stay local, DDP averages it later",
           sum / static_cast<double>(batch.size())}};
}

Suspicions of_running(const Batch& batch, const UseOnRank& use, const std::string& name) {
  const auto [mean, variance, count] = statistics_of(batch);
  const at::Tensor was = use.wide(name);
  const at::Tensor now = name == "running_mean" ? mean : variance * (count / (count - 1));
  return {{"no update", was},
          {"the biased variance, divided by n and not by n - 1",
           was * (1 - use.momentum) + variance * use.momentum},
          {"momentum taken for the weight of the old value",
           was * use.momentum + now * (1 - use.momentum)}};
}

}  // namespace

std::vector<Suspicion> suspicions(const Batch& batch, const UseOnRank& use,
                                  const std::string& name) {
  if (name == "output") {
    return of_output(batch, use);
  }
  if (name == "gradient of the input") {
    return of_input_gradient(batch, use);
  }
  if (name.starts_with("gradient")) {
    return of_parameter_gradient(batch, name);
  }
  return name.starts_with("running") && use.training ? of_running(batch, use, name) : Suspicions();
}

}  // namespace ddp::testing
