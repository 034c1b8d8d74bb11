#include "buckets.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "ddp/libtorch_versions.h"
#include "grader/training_evidence.h"

namespace ddp::testing {

namespace {

std::string name_of(const std::vector<Bucket>& buckets, std::size_t b) {
  std::string text =
      "bucket " + std::to_string(b) + " of " + std::to_string(buckets.size()) + ", of layer";
  const auto& layers = buckets[b].layers;
  text += layers.size() == 1 ? " " : "s ";
  for (std::size_t i = 0; i < std::min<std::size_t>(layers.size(), 4); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(layers[i]);
  }
  return text + (layers.size() > 4 ? " ..." : "");
}

Payload payload_of(const Seen& launch) { return {launch.elements, launch.dtype}; }

std::string listed(const std::vector<Payload>& payloads) {
  std::ostringstream out;
  for (std::size_t i = 0; i < std::min<std::size_t>(payloads.size(), 12); ++i) {
    out << (i > 0 ? ", " : "") << payloads[i].elements << " " << dtype_name(payloads[i].dtype);
  }
  return payloads.empty() ? "nothing" : out.str() + (payloads.size() > 12 ? " ..." : "");
}

std::vector<Payload> payloads_of(const std::vector<Bucket>& buckets) {
  std::vector<Payload> payloads;
  for (const Bucket& bucket : buckets) {
    if (bucket.payload.elements > 0) {  // an empty one need not be sent
      payloads.push_back(bucket.payload);
    }
  }
  return payloads;
}

std::vector<Payload> payloads_of(const std::vector<const Seen*>& launches) {
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
        const bool idle = step.launches.empty() && (ranks == 1 || step.ready.empty());
        return !step.ended || idle ? "" : check(training, step, ranks);
      });
}

Finding wrong_moment(const TrainingOfRank& training, const TrainingStep& step, std::size_t) {
  const std::vector<Bucket> buckets = buckets_of(training);
  const std::vector<Turn> turns = turns_of(step, layers_by_bucket(buckets));
  std::vector<const Seen*> launches = step.launches;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].payload.elements == 0) {
      continue;  // need not be sent; if it is, the next one waits for it
    }
    const auto launch = std::ranges::find_if(
        launches, [&](const Seen* seen) { return payload_of(*seen) == buckets[b].payload; });
    if (launch == launches.end()) {
      return "";  // another claim's business
    }
    const Seen& launched = **launch;
    launches.erase(launch);
    const Seen* complete = turns[b].complete;
    const bool in_finish = launched.place.phase == Phase::kFinish;
    if (!in_finish && (complete == nullptr || launched.order < complete->order)) {
      return Finding(name_of(buckets, b) + ", was launched before its last gradient was ready")
          .at(&launched, "launched too early");
    }
    if (const std::string late = late_for(turns[b], launched); !late.empty()) {
      return Finding(name_of(buckets, b) +
                     ", was launched too late: it was complete, and its turn, with " +
                     "the gradient of " + layer(turns[b].due->index) + ", but " + late +
                     " before it was launched")
          .at(&launched, "launched too late");
    }
  }
  return "";
}

}  // namespace

std::vector<Bucket> buckets_of(const TrainingOfRank& training) {
  std::vector<Bucket> buckets;
  const auto plan = training.others.find("plan");
  if (plan == training.others.end()) {
    return buckets;
  }
  for (const auto& indices : as_plan(plan->second)) {
    Bucket bucket;
    for (const std::size_t index : indices) {
      if (index >= training.listed.size()) {
        continue;  // plan_is_wrong() says so
      }
      const std::int64_t layer = training.listed[index];
      const at::Tensor& parameter = training.parameter.at(layer);
      bucket.layers.push_back(layer);
      bucket.payload.elements += parameter.numel();
      bucket.payload.dtype = parameter.scalar_type();
      bucket.bytes += static_cast<std::int64_t>(parameter.nbytes());
    }
    if (!bucket.layers.empty()) {
      buckets.push_back(bucket);
    }
  }
  return buckets;
}

std::vector<std::vector<std::int64_t>> layers_by_bucket(const std::vector<Bucket>& buckets) {
  std::vector<std::vector<std::int64_t>> layers;
  for (const Bucket& bucket : buckets) {
    layers.push_back(bucket.layers);
  }
  return layers;
}

Finding plan_is_wrong(const Evidence& evidence) {
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    for (const TrainingOfRank& training : ranks) {
      const auto found = training.others.find("plan");
      if (found == training.others.end() || training.parameter.empty()) {
        continue;
      }
      std::map<std::int64_t, at::Tensor> by_layer;
      std::vector<at::Tensor> listed;
      for (const std::int64_t layer : training.listed) {
        at::Tensor& tensor = by_layer[layer];
        if (!tensor.defined()) {
          tensor = training.parameter.at(layer).detach();
          tensor.set_requires_grad(training.trainable.contains(layer));
        }
        listed.push_back(tensor);
      }
      const auto cap = training.others.at("cap").item<std::int64_t>();
      if (!broken_rule(as_plan(found->second), listed, cap).empty()) {
        return "assign_buckets() makes another plan than the contract's, see "
               "plan_follows_the_rules";
      }
    }
  }
  return "";
}

Finding each_bucket_once(const Evidence& evidence) {
  return first_in_buckets(
      evidence,
      [](const TrainingOfRank& training, const TrainingStep& step, std::size_t) -> Finding {
        for (const Seen* launch : step.launches) {
          const bool ours =
              launch->place.phase == Phase::kBackward || launch->place.phase == Phase::kFinish;
          if (ours && !launch->place.no_sync && !is_all_reduce(*launch) && launch->bytes > 0) {
            return Finding(describe_operation(*launch) + " is neither needed nor allowed")
                .at(launch, "extra operation");
          }
        }
        std::vector<Payload> actual = payloads_of(step.launches);
        std::vector<Payload> expected = payloads_of(buckets_of(training));
        const auto by = [](const Payload& p) { return std::pair(p.elements, p.dtype); };
        std::ranges::sort(actual, {}, by);
        std::ranges::sort(expected, {}, by);
        return actual == expected
                   ? ""
                   : diagnosis(actual, expected) + ". Expected, sorted: " + listed(expected) +
                         "; got: " + listed(actual);
      });
}

Finding in_plan_order(const Evidence& evidence) {
  return first_in_buckets(
      evidence, [](const TrainingOfRank& training, const TrainingStep& step, std::size_t) {
        const std::vector<Payload> actual = payloads_of(step.launches);
        const std::vector<Payload> expected = payloads_of(buckets_of(training));
        const bool same_set = std::ranges::is_permutation(actual, expected);
        if (!same_set || actual == expected) {
          return Finding();
        }
        const auto first = std::ranges::mismatch(actual, expected).in1 - actual.begin();
        return Finding(
                   "the buckets were not launched in the order of the plan, in which a bucket "
                   "that is full early waits its turn. Expected: " +
                   listed(expected) + "; got: " + listed(actual))
            .at(step.launches[first], "out of order");
      });
}

Finding rest_is_launched_before_it_is_awaited(const Evidence& evidence) {
  return first_in_buckets(
      evidence, [&](const TrainingOfRank& training, const TrainingStep& step, std::size_t) {
        std::vector<const Seen*> launches = step.launches;
        std::erase_if(launches, [](const Seen* launch) { return !is_all_reduce(*launch); });
        const Seen* last = launches.empty() ? nullptr : launches.back();
        for (const Seen* launch : launches) {
          const Seen* wait = first_of(evidence, training.rank, launch->operation, EventKind::kWait);
          // Another thread may wait for each as soon as it is launched.
          if (wait != nullptr && wait->home && wait->order < last->order &&
              wait->place.phase == Phase::kFinish) {
            return Finding("finish() waited for " + describe_operation(*launch) +
                           " before it launched " + describe_operation(*last) +
                           ": those that are left can be on their way together")
                .at(last, "launched too late");
          }
        }
        return Finding();
      });
}

Finding with_its_last_gradient(const Evidence& evidence) {
  return first_in_buckets(evidence, wrong_moment);
}

Finding after_backward_one_by_one(const Evidence& evidence) {
  return first_in_buckets(evidence, [&](const TrainingOfRank& training, const TrainingStep& step,
                                        std::size_t) {
    const Seen* before = nullptr;
    for (const Seen* launch : step.launches) {
      if (launch->place.phase != Phase::kFinish) {
        return Finding(describe_operation(*launch) +
                       " was launched before finish(), with overlap = false")
            .at(launch, "launched too early");
      }
      if (before != nullptr) {
        const Seen* done = first_of(evidence, training.rank, before->operation, EventKind::kDone);
        if (done == nullptr || done->order > launch->order) {
          return Finding(describe_operation(*launch) + " was launched before " +
                         describe_operation(*before) + " was complete: with overlap = false they " +
                         "are blocking, one after the other")
              .at(launch, "launched too early");
        }
      }
      before = launch;
    }
    return Finding();
  });
}

}  // namespace ddp::testing
