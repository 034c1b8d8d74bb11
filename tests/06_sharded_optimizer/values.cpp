#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "claims.h"
#include "grader/compare.h"
#include "grader/norm.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// Where parameters end.

namespace ddp::testing {

namespace {

using Ranks = std::vector<TrainingOfRank>;

// What a mistake makes of training.
struct Mistake {
  double factor = 1;      // of means
  bool is_read = false;   // what the caller writes into parameters
  std::string what = {};  // for the student
};

// One process that trains with everybody's gradients and the whole of the optimizer.
class Unsharded {
 public:
  explicit Unsharded(const Ranks& ranks, Mistake mistake = {})
      : ranks_(ranks), mistake_(std::move(mistake)) {
    for (const std::int64_t layer : trainable(ranks[0])) {
      parameters_[layer] = ranks[0][kStart].at(layer).clone().set_requires_grad(true);
      scale_[layer] = largest(parameters_[layer]);
      epsilon_ = std::max(epsilon_, epsilon_of(parameters_[layer].scalar_type()));
    }
    std::vector<at::Tensor> all;
    for (const auto& [layer, parameter] : parameters_) {
      all.push_back(parameter);
    }
    inner_ = static_cast<Inner>(ranks[0].tensor(kInner).item<std::int64_t>());
    max_norm_ = ranks[0].tensor(kMaxNorm).item<double>();
    optimizer_ = all.empty()
                     ? nullptr
                     : make_inner(inner_, all, nullptr, ranks[0].tensor(kSlows).item<bool>());
  }

  /// False if the ranks have not said what their gradients are.
  bool step(int number) {
    double squares = 0;
    for (auto& [layer, parameter] : parameters_) {
      at::Tensor sum = at::zeros_like(parameter, at::kDouble);
      at::Tensor magnitude = sum.clone();
      for (const TrainingOfRank& training : ranks_) {
        const Tensors& local = training.steps.at(number)[kLocal];
        if (!local.contains(layer)) {
          return false;
        }
        if (const at::Tensor& gradient = local.at(layer); gradient.defined()) {
          sum += gradient.to(at::kDouble);
          magnitude += gradient.to(at::kDouble).abs();
        }
      }
      const at::Tensor mean = sum * (mistake_.factor / static_cast<double>(ranks_.size()));
      mean_[layer] = mean;
      parameter.mutable_grad() =
          mean.to(parameter.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
      squares += mean.square().sum().item<double>();
      scale_[layer] = std::max(scale_[layer], largest(parameter));
      gradient_[layer] = std::max(gradient_[layer], largest(magnitude));
    }
    const double scale = max_norm_ / (std::sqrt(squares) + 1e-6);
    if (max_norm_ > 0 && scale < 1) {
      for (auto& [layer, parameter] : parameters_) {
        parameter.mutable_grad().mul_(scale);
      }
    }
    if (mistake_.is_read && ranks_[0].has(kOverwritten) && number == 1) {
      const at::NoGradGuard no_grad;
      for (auto& [layer, parameter] : parameters_) {
        parameter.fill_(ranks_[0].tensor(kOverwritten).item<double>());
      }
    }
    if (optimizer_) {
      optimizer_->step();
    }
    ++steps_;
    return true;
  }

  const Ranks& ranks() const { return ranks_; }
  const std::map<std::int64_t, at::Tensor>& means() const { return mean_; }
  const std::map<std::int64_t, at::Tensor>& parameters() const { return parameters_; }
  const at::Tensor& start(std::int64_t layer) const { return ranks_[0][kStart].at(layer); }

  /// However sums were rounded: in each step a gradient may be off by some roundings, a parameter, too,
  /// and the norm by some of the coarsest dtype; AdamW divides by gradients.
  double tolerance_of(std::int64_t layer) const {
    const double once = learning_rate(inner_) * gradient_.at(layer) + scale_.at(layer);
    const double epsilon = epsilon_of(parameters_.at(layer).scalar_type());
    const double scaling =
        max_norm_ > 0 ? epsilon_ * learning_rate(inner_) * gradient_.at(layer) : 0;
    return (inner_ == Inner::kAdamW ? 1e4 : 8) * steps_ * (epsilon * once + scaling);
  }

 private:
  static double largest(const at::Tensor& tensor) {
    return tensor.numel() == 0
               ? 0
               : tensor.detach().to(at::kDouble).abs().nan_to_num(0, 0, 0).max().item<double>();
  }

  const Ranks& ranks_;
  const Mistake mistake_;
  Inner inner_{};
  double max_norm_ = 0;
  double epsilon_ = 0;  // the coarsest
  int steps_ = 0;
  std::map<std::int64_t, at::Tensor> parameters_, mean_;
  std::map<std::int64_t, double> scale_,
      gradient_;  // the largest so far; gradients of all ranks together
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

using Compare = std::function<Finding(const TrainingOfRank&, int step, const Unsharded&)>;

// `compare` after each step that all ranks have ended, for as long as they say what they computed.
Finding first_after_steps(const Evidence& evidence, const Compare& compare) {
  if (reduced_inside_no_sync(evidence)) {
    return "";
  }
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    if (!ranks[0].has(kInner)) {
      continue;
    }
    Unsharded unsharded(ranks);
    const std::vector<int> whole = whole_steps(ranks);
    for (const auto& [number, step] : ranks[0].steps) {
      if (std::ranges::count(whole, number) == 0 || !unsharded.step(number)) {
        break;
      }
      for (const TrainingOfRank& training : ranks) {
        if (Finding text = compare(training, number, unsharded); !text.empty()) {
          return std::move(text).or_at(last_in_step(evidence, training.rank, number));
        }
      }
    }
  }
  return "";
}

// The mistake that a parameter would come of; empty if none that is known.
std::string mistake_of(const Ranks& ranks, int step, std::int64_t layer, const at::Tensor& actual) {
  const auto count = static_cast<double>(ranks.size());
  for (const Mistake& mistake :
       {Mistake{.factor = count,
       .what = "as with sums over the ranks: not divided by the world size?"},
        Mistake{.factor = 1 / count, .what = "as with means that were divided twice"},
        Mistake{.is_read = true, .what = "as if the caller's write had counted: the shards do"}}) {
    Unsharded other(ranks, mistake);
    for (int number = 0; number <= step; ++number) {
      other.step(number);
    }
    if (is_close({}, actual, other.parameters().at(layer).detach(), other.tolerance_of(layer))) {
      return mistake.what;
    }
  }
  return "";
}

using CompareTensor = std::function<Comparison(const Subject&, const at::Tensor& actual,
                                               const at::Tensor& expected, double tolerance)>;

Finding first_parameter(const Evidence& evidence, const CompareTensor& compare) {
  return first_after_steps(
      evidence,
      [&](const TrainingOfRank& training, int step, const Unsharded& unsharded) -> Finding {
        for (const auto& [index, updated] : training.steps.at(step)[kUpdated]) {
          const std::int64_t own = listed(training).at(index);
          const auto expected = unsharded.parameters().find(own);
          if (expected == unsharded.parameters().end()) {
            continue;
          }
          const at::Tensor& before =
              step == 0 ? unsharded.start(own) : training.steps.at(step - 1)[kUpdated].at(index);
          Subject subject{
              .name = in(training, step) + ": after step() the parameter of " + layer(own),
              .otherwise =
                  is_identical(updated, before) ? "exactly as before step(): not updated?" : ""};
          const at::Tensor right = expected->second.detach();
          const double tolerance = unsharded.tolerance_of(own);
          if (!compare(subject, updated, right, tolerance)) {
            subject.otherwise = subject.otherwise.empty()
                                    ? mistake_of(unsharded.ranks(), step, own, updated)
                                    : subject.otherwise;
            return said(compare(subject, updated, right, tolerance));
          }
        }
        return "";
      });
}

// Of each rank's chunks of the means.
std::vector<double> squares_of_shards(const TrainingOfRank& training, const Unsharded& unsharded) {
  const std::size_t ranks = unsharded.ranks().size();
  std::vector<double> squares(ranks);
  for (const Bucket& bucket : full_buckets_of(training)) {
    std::vector<at::Tensor> flat;
    for (const std::int64_t layer : bucket.layers) {
      flat.push_back(unsharded.means().at(layer).reshape({-1}));
    }
    const std::vector<at::Tensor> chunks = at::cat(flat).split(bucket.chunk(ranks));
    for (std::size_t r = 0; r < chunks.size(); ++r) {
      squares.at(r) += chunks[r].square().sum().item<double>();
    }
  }
  return squares;
}

}  // namespace

Finding parameters_are_the_unsharded_optimizers(const Evidence& evidence) {
  return first_parameter(evidence, [](const Subject& subject, const at::Tensor& actual,
                                      const at::Tensor& expected, double tolerance) {
    return is_identical(actual, expected) ? Comparison()
                                          : is_close(subject, actual, expected, tolerance);
  });
}

Finding parameters_are_the_same_bits(const Evidence& evidence) {
  return first_parameter(
      evidence, [](const Subject& subject, const at::Tensor& actual, const at::Tensor& expected,
                   double) { return is_bitwise_equal(subject, actual, expected); });
}

Finding parameters_stay_in_place(const Evidence& evidence) {
  return first_event(evidence, kElsewhere, [](const Seen& fact, int rank) {
    return where(fact, rank) + ": after step() parameter " + std::to_string(fact.index) +
           " has another storage: new values must be written into its own";
  });
}

Finding ranks_have_the_same_bits(const Evidence& evidence) {
  return first_in_steps(evidence, [](const Ranks& ranks, int step) {
    return first_in(ranks, [&](const TrainingOfRank& training) {
      return first_in(training.steps.at(step)[kUpdated], [&](const auto& updated) {
        const auto& [index, parameter] = updated;
        return same_bits(parameter, ranks[0].steps.at(step)[kUpdated].at(index))
                   ? ""
                   : in(training, step) + ": after step() the parameter of " +
                         layer(listed(training).at(index)) + " has other bits than " +
                         on(ranks[0].rank) + "'s";
      });
    });
  });
}

Finding norm_is_that_of_the_means(const Evidence& evidence) {
  return first_after_steps(
      evidence, [&](const TrainingOfRank& training, int step, const Unsharded& unsharded) {
        const TrainingStep& said = training.steps.at(step);
        const std::string text = said.has(kReturnedNorm)
                                     ? wrong_norm(said.tensor(kReturnedNorm).item<double>(),
                                                  squares_of_shards(training, unsharded),
                                                  &training - unsharded.ranks().data(), 2e-3,
                                                  "the mean gradients of all parameters together")
                                     : "";
        return text.empty() ? "" : in(training, step) + ": " + text;
      });
}

}  // namespace ddp::testing
