#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "claims.h"
#include "ddp/libtorch_versions.h"
#include "grader/compare.h"

// What a use should have given, in float64.

namespace ddp::testing {

namespace {

at::Tensor sum_of_channels(const at::Tensor& values) {
  return values.sum(without_channels(values));
}

// Statistics of a batch, float64 [C].
struct Statistics {
  at::Tensor mean, variance;  // biased
  double count = 0;           // samples * positions; 0 for running statistics
};

Statistics statistics_of(const Batch& batch) {
  const UseOnRank& first = batch[0];
  if (!first.training && first.at("running_mean", kBefore).defined()) {
    return {first.wide("running_mean"), first.wide("running_var"), 0};
  }
  std::vector<at::Tensor> inputs;
  for (const UseOnRank& use : batch) {
    inputs.push_back(use.wide("input"));
  }
  const at::Tensor x = at::cat(inputs);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  const at::Tensor mean = sum_of_channels(x) / count;
  return {mean, sum_of_channels((x - along_channels(mean, x)).square()) / count, count};
}

at::Tensor or_full(const at::Tensor& of_channels, const at::Tensor& mean, double otherwise) {
  return of_channels.defined() ? of_channels : at::full_like(mean, otherwise);
}

// The quantities of the handout, for one rank of a batch.
struct Terms {
  Terms(const Batch& batch, const UseOnRank& use)
      : statistics(statistics_of(batch)),
        dtype(use.at("input", kBefore).scalar_type()),
        x(use.wide("input")),
        deviation((statistics.variance + use.eps).sqrt()),
        weight(or_full(use.wide("weight"), deviation, 1)),
        x_hat(normalized(x)),
        relative(statistics.mean.abs() / deviation) {}

  at::Tensor normalized(const at::Tensor& of) const {
    return (of - along_channels(statistics.mean, of)) / along_channels(deviation, of);
  }

  // `scale`: the factor by which errors of the normalized values grow.
  at::Tensor tolerance(const at::Tensor& expected, const at::Tensor& scale) const {
    const at::Tensor of_channel = along_channels(scale.clamp_min(1), expected);
    if (dtype == at::kDouble) {
      return along_channels(1e-10 + 4 * 0x1p-52 * relative, expected) * of_channel;
    }
    return along_channels(1e-3 + 4 * 0x1p-23 * relative, expected) * of_channel +
           expected.abs() * (epsilon_of(dtype) + 3 * 0x1p-23);  // computed in float32, then rounded
  }

  Statistics statistics;
  at::ScalarType dtype;
  at::Tensor x, deviation, weight, x_hat;
  at::Tensor relative;  // |mean| / deviation: how many digits the subtraction costs
};

at::Tensor weighted(const Terms& terms, const UseOnRank& use, const at::Tensor& x_hat) {
  const at::Tensor bias = or_full(use.wide("bias"), terms.deviation, 0);
  return x_hat * along_channels(terms.weight, x_hat) + along_channels(bias, x_hat);
}

Expected output(const Terms& terms, const UseOnRank& use) {
  const at::Tensor value = weighted(terms, use, terms.x_hat);
  return {value.to(terms.dtype), terms.tolerance(value, terms.weight.abs())};
}

Expected input_gradient(const Terms& terms, const Batch& batch, const UseOnRank& use) {
  const at::Tensor g = use.wide("upstream", kAfterBackward);
  at::Tensor value = g;
  if (terms.statistics.count > 0) {
    at::Tensor sum = at::zeros_like(terms.deviation);
    at::Tensor sum_x_hat = at::zeros_like(terms.deviation);
    for (const UseOnRank& other : batch) {
      const at::Tensor theirs = other.wide("upstream", kAfterBackward);
      if (!theirs.defined()) {
        return {};  // that rank's backward has not ended
      }
      sum = sum + sum_of_channels(theirs);
      sum_x_hat = sum_x_hat + sum_of_channels(theirs * terms.normalized(other.wide("input")));
    }
    value = g - along_channels(sum / terms.statistics.count, g) -
            terms.x_hat * along_channels(sum_x_hat / terms.statistics.count, g);
  }
  const at::Tensor factor = terms.weight / terms.deviation;
  value = value * along_channels(factor, g);
  return {value.to(terms.dtype), terms.tolerance(value, factor.abs())};
}

// `factors`: what the upstream gradient is multiplied by before it is summed up.
Expected parameter_gradient(const Terms& terms, const UseOnRank& use, const std::string& parameter,
                            const at::Tensor& factors) {
  const at::Tensor g = use.wide("upstream", kAfterBackward);
  const at::ScalarType dtype = use.at(parameter, kBefore).scalar_type();
  const at::Tensor value = sum_of_channels(g * factors);
  // The mean's error is the same in every term, that of a product is not.
  const at::Tensor errors = 16 * sum_of_channels(g).abs() + 4 * sum_of_channels(g.square()).sqrt();
  at::Tensor tolerance = 1e-10 + 0x1p-52 * terms.relative * errors;
  if (terms.dtype != at::kDouble) {
    const at::Tensor rounding = 32 * sum_of_channels((g * factors).abs());
    const double in_common = terms.dtype == at::kFloat ? 0 : 1e-3;
    tolerance = 1e-3 + 0x1p-23 * (terms.relative * errors + rounding) +
                value.abs() * (in_common + 4 * epsilon_of(dtype));
  }
  return {value.to(dtype), tolerance};
}

// How far a batch's statistic may be off: relatively to the deviation, which may be tiny. A mean of a
// rank may be off by its rounding, which affects the variance between ranks.
at::Tensor error_of_statistic(const Terms& terms, const std::string& name) {
  const at::Tensor& variance = terms.statistics.variance;
  const at::Tensor deviation = variance.sqrt();
  const bool precise = terms.dtype == at::kDouble;
  const at::Tensor rounding = (precise ? 4 * 0x1p-52 : 4 * 0x1p-23) * terms.statistics.mean.abs();
  const double relative = precise ? 1e-10 : 2e-5;
  return name == "running_mean" ? relative * deviation + 2 * rounding
                                : relative * variance + 2 * rounding * (deviation + rounding);
}

Expected running(const Terms& terms, const UseOnRank& use, const std::string& name) {
  const at::Tensor before = use.at(name, kBefore);
  if (!use.training) {
    return {before, at::zeros({}, at::kDouble)};
  }
  const double momentum = std::isnan(use.momentum)
                              ? 1 / (use.at("num_batches_tracked", kBefore).item<double>() + 1)
                              : use.momentum;
  const auto& [mean, variance, count] = terms.statistics;
  const at::Tensor batch = name == "running_mean" ? mean : variance * (count / (count - 1));
  const at::Tensor value = before.to(at::kDouble) * (1 - momentum) + batch * momentum;
  return {value.to(before.scalar_type()),
          error_of_statistic(terms, name) +
              (value.abs() + batch.abs()) * (4 * epsilon_of(before.scalar_type()))};
}

// Another result, and the mistake that it comes of.
struct Suspicion {
  std::string text;  // "the biased variance"
  at::Tensor value;
};
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

Suspicions of_output(const Terms& terms, const Batch& batch, const UseOnRank& use) {
  const at::Tensor& x = terms.x;
  const at::Tensor variance = along_channels(terms.statistics.variance, x);
  const auto by = [&](const at::Tensor& deviation) {
    return weighted(terms, use, (x - along_channels(terms.statistics.mean, x)) / deviation);
  };
  Suspicions all;
  if (x.numel() > 0) {
    const at::Tensor own = (x - mean_of_channels(x)) / (variance_of_channels(x) + use.eps).sqrt();
    all.push_back({use.training ? "this rank's own statistics: not combined over the ranks?"
                                : "this rank's own statistics, not the running ones",
                   weighted(terms, use, own)});
  }
  if (const double count = terms.statistics.count; count > 1) {
    all.push_back({"the variances within the ranks alone: the means differ, too",
                   by((variance_within(batch) + use.eps).sqrt())});
    all.push_back({"the unbiased variance: that is for the running one",
                   by((variance * (count / (count - 1)) + use.eps).sqrt())});
  }
  all.push_back({"eps added outside the root", by(variance.sqrt() + use.eps)});
  all.push_back({"no weight and no bias", terms.x_hat});
  return all;
}

Suspicions of_input_gradient(const Terms& terms, const Batch& batch, const UseOnRank& use) {
  const at::Tensor g = use.wide("upstream", kAfterBackward);
  const auto formula = [&](const at::Tensor& mean, const at::Tensor& mean_x_hat) {
    return along_channels(terms.weight / terms.deviation, g) *
           (g - mean - terms.x_hat * mean_x_hat);
  };
  const at::Tensor all_g = all_of_ranks(batch, "upstream", kAfterBackward);
  const at::Tensor mean = mean_of_channels(all_g);
  const at::Tensor mean_x_hat =
      mean_of_channels(all_g * terms.normalized(all_of_ranks(batch, "input", kBefore)));
  const at::Tensor zero = at::zeros_like(mean);
  const double own_count = count_of(g);
  const double count = count_of(all_g);
  const at::Tensor own = mean_of_channels(g) * own_count;
  const at::Tensor own_x_hat = mean_of_channels(g * terms.x_hat) * own_count;
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

// What typical mistakes make of a tensor of a use.
Suspicions suspicions(const Batch& batch, const UseOnRank& use, const std::string& name) {
  if (name == "output") {
    return of_output(Terms(batch, use), batch, use);
  }
  if (name == "gradient of the input") {
    return of_input_gradient(Terms(batch, use), batch, use);
  }
  if (name.starts_with("gradient")) {
    return of_parameter_gradient(batch, name);
  }
  return name.starts_with("running") && use.training ? of_running(batch, use, name) : Suspicions();
}

bool looks_like(const at::Tensor& actual, const at::Tensor& value) {
  const bool precise = actual.scalar_type() == at::kDouble;
  return actual.sizes() == value.sizes() &&
         at::allclose(actual.to(at::kDouble), value.to(at::kDouble), precise ? 1e-7 : 1e-4,
                      precise ? 1e-9 : 1e-5);
}

std::string diagnosis(const Batch& batch, const UseOnRank& use, const std::string& name,
                      const at::Tensor& actual, const at::Tensor& right) {
  if (!actual.defined() || actual.numel() == 0) {
    return "";
  }
  for (const auto& [text, value] : suspicions(batch, use, name)) {
    if (looks_like(actual, value) && !looks_like(right, value)) {
      return "\n  diagnosis: this is what comes of " + text;
    }
  }
  return "";
}

// Of half and bfloat16, which one cannot guess.
std::string tolerance_in_words(const UseOnRank& use) {
  const at::ScalarType dtype = use.at("input", kBefore).scalar_type();
  if (dtype != at::kHalf && dtype != at::kBFloat16) {
    return "";
  }
  return "\n  allowed: 1e-3 + " + std::string(dtype == at::kHalf ? "2^-10" : "2^-7") +
         " of the value, which float32 keeps if only the result is rounded to " + dtype_name(dtype);
}

}  // namespace

Expected expected(const Batch& batch, const UseOnRank& use, const std::string& name) {
  const bool is_gradient = name.starts_with("gradient");
  if (is_gradient ? use[ValueKey{name}].empty() : !use.at(name, kAfterForward).defined()) {
    return {};
  }
  if (name == "num_batches_tracked") {
    return {use.at(name, kBefore) + (use.training ? 1 : 0), at::zeros({}, at::kDouble)};
  }
  const Terms terms(batch, use);
  if (name == "output") {
    return output(terms, use);
  }
  if (name == "gradient of the input") {
    return input_gradient(terms, batch, use);
  }
  if (name == "gradient of the weight") {
    return parameter_gradient(terms, use, "weight", terms.x_hat);
  }
  if (name == "gradient of the bias") {
    return parameter_gradient(terms, use, "bias", at::ones_like(terms.x_hat));
  }
  return running(terms, use, name);
}

Finding wrong_values(const Batch& batch, const std::vector<std::string>& names) {
  return first_in(batch, [&](const UseOnRank& use) {
    return first_in(names, [&](const std::string& name) {
      const auto [value, tolerance] = expected(batch, use, name);
      const bool is_gradient = name.starts_with("gradient");
      const at::Tensor actual = use.at(name, is_gradient ? kAfterBackward : kAfterForward);
      if (!value.defined() ||
          (is_gradient && !actual.defined() && value.eq(0).all().item<bool>())) {
        return Finding();  // undefined means zero to autograd
      }
      const Subject subject{describe(batch, use) + ": the " + name, static_cast<int>(batch.size())};
      Finding finding = is_close(subject, actual, value, tolerance).difference();
      finding.text += finding.empty()
                          ? ""
                          : diagnosis(batch, use, name, actual, value) + tolerance_in_words(use);
      return finding;
    });
  });
}

}  // namespace ddp::testing
