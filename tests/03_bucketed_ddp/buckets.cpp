#include "buckets.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "ddp/libtorch_versions.h"
#include "grader/training_evidence.h"

namespace ddp::testing {

namespace {

std::string name_of(const Buckets& buckets, std::size_t b) {
  const auto& layers = buckets[b].layers;
  const auto number = [](std::int64_t layer) { return std::to_string(layer); };
  return "bucket " + std::to_string(b) + " of " + std::to_string(buckets.size()) + ", of layer" +
         (layers.size() == 1 ? " " : "s ") + enumerated(layers, number, 4);
}

Payload payload_of(const Seen& launch) { return {launch.elements, launch.dtype}; }
Payload payload_of(const Bucket& bucket) { return {bucket.elements, bucket.dtype}; }

std::string in_words(const std::vector<Payload>& payloads) {
  return payloads.empty() ? "nothing"
                          : enumerated(payloads, [](const Payload& p) { return to_string(p); });
}

std::vector<std::string> words(const std::vector<Payload>& payloads) {
  std::vector<std::string> texts;
  std::ranges::transform(payloads, std::back_inserter(texts),
                         [](const Payload& each) { return to_string(each); });
  return texts;
}

std::vector<Payload> due_in(const TrainingOfRank& training) {
  std::vector<Payload> payloads;
  for (const Bucket& bucket : full_buckets_of(training)) {  // an empty one need not be sent
    payloads.push_back(payload_of(bucket));
  }
  return payloads;
}

std::vector<Payload> payloads_of(const Events& launches) {
  std::vector<Payload> payloads;
  for (const Seen* launch : launches) {
    const bool ours =
        launch->place.phase == Phase::kBackward || launch->place.phase == Phase::kFinish;
    if (is_all_reduce(*launch) && ours && launch->elements > 0) {
      payloads.push_back(payload_of(*launch));
    }
  }
  return payloads;
}

// Describes the kind of difference, if it can be told.
std::string diagnosis(const std::vector<Payload>& actual, const std::vector<Payload>& expected) {
  const auto total = [](const std::vector<Payload>& payloads) {
    std::int64_t sum = 0;
    for (const Payload& payload : payloads) {
      sum += payload.elements;
    }
    return sum;
  };
  const std::int64_t more = total(actual) - total(expected);
  if (actual.size() < expected.size()) {
    return std::to_string(expected.size() - actual.size()) + " of the buckets were not reduced";
  }
  if (actual.size() > expected.size()) {
    return "more all-reduces than there are buckets";
  }
  if (more > 0) {
    return std::to_string(more) + " elements more than the gradients have: padding?";
  }
  return more == 0 ? "the same elements in all, but in other buckets or dtypes"
                   : std::to_string(-more) + " elements fewer than the gradients have";
}

// `check` of every step that has ended, on every rank. One rank has nobody to reduce with, and doing
// nothing with nothing does no harm.
Finding first_in_buckets(const Evidence& evidence, const CheckOfStep& check) {
  return first_on_ranks(
      evidence, [&](const TrainingOfRank& training, const TrainingStep& step, std::size_t ranks) {
        const bool idle = step.launches().empty() && (ranks == 1 || ready_in(step).empty());
        return !has_ended(step) || idle ? "" : check(training, step, ranks);
      });
}

Finding wrong_moment(const TrainingOfRank& training, const TrainingStep& step, std::size_t) {
  const Buckets buckets = buckets_of(training);
  const std::vector<Turn> turns = turns_of(step, layers_of(buckets));
  Events launches = step.launches();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].elements == 0) {
      continue;  // need not be sent; if it is, the next one waits for it
    }
    const auto launch = std::ranges::find_if(
        launches, [&](const Seen* seen) { return payload_of(*seen) == payload_of(buckets[b]); });
    if (launch == launches.end()) {
      return "";  // another claim's business
    }
    const Seen& launched = **launch;
    launches.erase(launch);
    Finding wrong =
        out_of_turn(turns[b], launched, name_of(buckets, b) + ", ", "was launched", "it");
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return "";
}

}  // namespace

Finding plan_is_wrong(const Evidence& evidence) {
  return first_training(evidence, [](const TrainingOfRank& training, const auto&) {
    if (!training.has(kBucketPlan) || training[kParameter].empty()) {
      return Finding();
    }
    std::map<std::int64_t, at::Tensor> by_layer;
    std::vector<at::Tensor> parameters;
    for (const std::int64_t layer : listed(training)) {
      at::Tensor& tensor = by_layer[layer];
      if (!tensor.defined()) {
        tensor = training[kParameter].at(layer).detach();
        tensor.set_requires_grad(trainable(training).contains(layer));
      }
      parameters.push_back(tensor);
    }
    const auto cap = training.tensor(kCap).item<std::int64_t>();
    const Plan plan = as_plan(training.tensor(kBucketPlan));
    return broken_rule(plan, parameters, cap).empty()
               ? Finding()
               : Finding(
                     "assign_buckets() makes another plan than the contract's, see "
                     "plan_follows_the_rules");
  });
}

Finding each_bucket_once(const Evidence& evidence) {
  return first_in_buckets(
      evidence,
      [](const TrainingOfRank& training, const TrainingStep& step, std::size_t) -> Finding {
        for (const Seen* launch : step.launches()) {
          const bool ours =
              launch->place.phase == Phase::kBackward || launch->place.phase == Phase::kFinish;
          if (ours && !launch->place.no_sync && !is_all_reduce(*launch) && launch->bytes > 0) {
            return Finding(describe_operation(*launch) + " is neither needed nor allowed")
                .at(launch, "extra operation");
          }
        }
        std::vector<Payload> actual = payloads_of(step.launches());
        std::vector<Payload> expected = due_in(training);
        const auto by = [](const Payload& p) { return std::pair(p.elements, p.dtype); };
        std::ranges::sort(actual, {}, by);
        std::ranges::sort(expected, {}, by);
        return actual == expected
                   ? ""
                   : diagnosis(actual, expected) + ". Expected, sorted: " + in_words(expected) +
                         "; got: " + in_words(actual);
      });
}

Finding in_plan_order(const Evidence& evidence) {
  return first_in_buckets(
      evidence, [](const TrainingOfRank& training, const TrainingStep& step, std::size_t) {
        const std::vector<Payload> actual = payloads_of(step.launches());
        const std::vector<Payload> expected = due_in(training);
        const bool same_set = std::ranges::is_permutation(actual, expected);
        if (!same_set || actual == expected) {
          return Finding();
        }
        const auto first = std::ranges::mismatch(actual, expected).in1 - actual.begin();
        return Finding(
                   "the buckets were not launched in the order of the plan, in which a bucket "
                   "that is full early waits its turn. Expected: " +
                   in_words(expected) + "; got: " + in_words(actual))
            .at(step.launches()[first], "out of order")
            .in_order(words(expected), words(actual));
      });
}

Finding rest_is_launched_before_it_is_awaited(const Evidence& evidence) {
  return first_in_buckets(
      evidence, [&](const TrainingOfRank& training, const TrainingStep& step, std::size_t) {
        Events launches = step.launches();
        std::erase_if(launches, [](const Seen* launch) { return !is_all_reduce(*launch); });
        return awaited_before_the_last(evidence, training.rank, launches);
      });
}

Finding with_its_last_gradient(const Evidence& evidence) {
  return first_in_buckets(evidence, wrong_moment);
}

Finding after_backward_one_by_one(const Evidence& evidence) {
  return first_in_buckets(evidence, [&](const TrainingOfRank& training, const TrainingStep& step,
                                        std::size_t) {
    return not_one_by_one(evidence, training.rank, step, "they are blocking, one after the other");
  });
}

}  // namespace ddp::testing
