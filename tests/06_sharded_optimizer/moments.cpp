#include <algorithm>

#include "claims.h"
#include "grader/training_evidence.h"

// When buckets are launched.

namespace ddp::testing {

namespace {

Finding wrong_moment(const StepOfRank& of) {
  const Buckets all = buckets_of(of.training);
  std::vector<Turn> turns = turns_of(of.step, layers_of(all));
  std::size_t b = 0;  // among those that have elements
  for (std::size_t i = 0; i < all.size() && b < of.reduce_scatters.size(); ++i) {
    if (all[i].elements > 0) {
      Finding wrong =
          out_of_turn(turns[i], *of.reduce_scatters[b],
                      name_of(of.buckets, b) + ": its reduce-scatter ", "started", "the bucket");
      if (!wrong.empty()) {
        return wrong;
      }
      ++b;
    }
  }
  return "";
}

}  // namespace

Finding in_plan_order(const StepOfRank& step) {
  Finding text = wrong_bytes(step, Compared::kInOrder);
  if (!text.empty() || step.reduce_scatters.empty()) {
    return text;
  }
  const Seen& last = *step.reduce_scatters.back();
  for (const Seen* gather : step.all_gathers) {
    if (gather->order < last.order) {
      return Finding(describe_operation(*gather) + " started before " + describe_operation(last) +
                     ": step() launches all that is left to reduce first")
          .at(gather, "launched too early");
    }
  }
  return step.training.has(kWithOverlap)
             ? awaited_before_the_last(step.evidence, step.training.rank, step.reduce_scatters)
             : "";
}

Finding with_its_last_gradient(const StepOfRank& step) {
  if (Finding text = wrong_moment(step); !text.empty()) {
    return text;
  }
  if (step.reduce_scatters.empty() && !step.buckets.empty()) {
    return "no reduce-scatter started";
  }
  for (std::size_t b = 0; b < std::min(step.buckets.size(), step.reduce_scatters.size()); ++b) {
    const Seen& launch = *step.reduce_scatters[b];
    for (const Seen* kept : step.step[kGradientIsKept]) {
      const std::int64_t index = listed(step.training).at(kept->index);
      if (launch.place.phase == Phase::kBackward &&
          std::ranges::count(step.buckets[b].layers, index) > 0) {
        return "the gradient of " + layer(index) +
               " is still there after backward, although its bucket's reduce-scatter has started; "
               "let "
               "it go then, or a rank holds all gradients at once";
      }
    }
    for (const Seen* left : step.step[kGradientIsLeft]) {
      const std::int64_t index = listed(step.training).at(left->index);
      if (trainable(step.training).contains(index) &&
          step.training[kParameter].at(index).numel() > 0) {
        return "the gradient of " + layer(index) + " is still defined after step()";
      }
    }
  }
  return "";
}

Finding with_its_update(const StepOfRank& step) {
  const Events& gathers = step.all_gathers;
  const std::size_t buckets = step.buckets.size();
  if (gathers.empty() && buckets > 0) {
    return "no all-gather started";
  }
  if (gathers.size() != buckets || gathers.empty()) {
    return "";  // another claim's business
  }
  const Events& updates = step.step[kUpdate];
  if (updates.size() != buckets) {
    return "optimizers took " + std::to_string(updates.size()) + " steps for " +
           std::to_string(buckets) + " buckets; one each is due";
  }
  for (std::size_t b = 0; b < buckets; ++b) {
    if (gathers[b]->order < updates[b]->order) {
      return Finding(name_of(step.buckets, b) +
                     ": its all-gather started before its optimizer's step")
          .at(gathers[b], "launched too early");
    }
    if (b + 1 < buckets && gathers[b]->order > updates[b + 1]->order) {
      return Finding(
                 name_of(step.buckets, b) +
                 ": its all-gather started only after the next bucket's optimizer step, although "
                 "its own shard was updated before that")
          .at(gathers[b], "launched too late");
    }
  }
  return "";
}

Finding after_backward_one_by_one(const StepOfRank& step) {
  return not_one_by_one(step.evidence, step.training.rank, step.step, "one follows the other");
}

}  // namespace ddp::testing
