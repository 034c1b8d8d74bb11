#include "grader/buckets.h"

#include <ATen/ATen.h>

#include <iterator>
#include <utility>

namespace ddp::testing {

at::Tensor as_tensor(const Plan& plan) {
  std::vector<std::int64_t> numbers;
  for (const auto& bucket : plan) {
    numbers.insert(numbers.end(), bucket.begin(), bucket.end());
    numbers.push_back(-1);
  }
  return at::tensor(numbers, at::kLong);
}

Plan as_plan(const at::Tensor& numbers) {
  Plan plan;
  std::vector<std::size_t> bucket;
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const auto number = numbers[i].item<std::int64_t>();
    if (number >= 0) {
      bucket.push_back(number);
    } else {
      plan.push_back(std::exchange(bucket, {}));
    }
  }
  return plan;
}

std::int64_t Bucket::bytes(std::int64_t of) const {
  return of * static_cast<std::int64_t>(c10::elementSize(dtype));
}

std::int64_t Bucket::chunk(std::size_t ranks) const {
  const auto count = static_cast<std::int64_t>(ranks);
  return (elements + count - 1) / count;
}

Buckets buckets_of(const TrainingOfRank& training) {
  Buckets buckets;
  const std::vector<std::int64_t> layers = listed(training);
  for (const auto& indices :
       training.has(kBucketPlan) ? as_plan(training.tensor(kBucketPlan)) : Plan()) {
    Bucket bucket;
    for (const std::size_t index : indices) {
      if (index < layers.size()) {
        const at::Tensor& parameter = training[kParameter].at(layers[index]);
        bucket.layers.push_back(layers[index]);
        bucket.elements += parameter.numel();
        bucket.dtype = parameter.scalar_type();
      }
    }
    if (!bucket.layers.empty()) {
      buckets.push_back(std::move(bucket));
    }
  }
  return buckets;
}

Buckets full_buckets_of(const TrainingOfRank& training) {
  Buckets buckets = buckets_of(training);
  std::erase_if(buckets, [](const Bucket& bucket) { return bucket.elements == 0; });
  return buckets;
}

std::vector<std::vector<std::int64_t>> layers_of(const Buckets& buckets) {
  std::vector<std::vector<std::int64_t>> layers;
  std::ranges::transform(buckets, std::back_inserter(layers), &Bucket::layers);
  return layers;
}

Finding out_of_turn(const Turn& turn, const Seen& launch, const std::string& what,
                    const std::string& began, const std::string& bucket) {
  const bool in_finish = launch.place.phase == Phase::kFinish;
  if (!in_finish && (turn.complete == nullptr || launch.order < turn.complete->order)) {
    return Finding(what + began + " before its last gradient was ready")
        .at(&launch, "launched too early");
  }
  const std::string late = late_for(turn, launch);
  return late.empty()
             ? ""
             : Finding(what + began + " too late: " + bucket +
                       " was full and next in line once the gradient of " + layer(turn.due->index) +
                       " was ready, but " + began + " only after " + late)
                   .at(&launch, "launched too late");
}

Finding awaited_before_the_last(const Evidence& evidence, int rank, const Events& launches) {
  for (const Seen* launch : launches) {
    const Seen& last = *launches.back();
    const Seen* wait = first_of(evidence, rank, launch->operation, EventKind::kWait);
    // Another thread may wait for each as soon as it is launched.
    if (wait != nullptr && wait->home && wait->order < last.order &&
        wait->place.phase == Phase::kFinish) {
      return Finding("finish() waited for " + describe_operation(*launch) + " before it launched " +
                     describe_operation(last) + ": launch all that is left first, then wait")
          .at(&last, "launched too late");
    }
  }
  return "";
}

Finding not_one_by_one(const Evidence& evidence, int rank, const TrainingStep& step,
                       const char* how) {
  const Seen* before = nullptr;
  for (const Seen* launch : step.launches()) {
    const std::string launched = describe_operation(*launch) + " was launched before ";
    if (launch->place.phase != Phase::kFinish) {
      return Finding(launched + "finish(), with overlap = false").at(launch, "launched too early");
    }
    const Seen* done =
        before == nullptr ? launch : first_of(evidence, rank, before->operation, EventKind::kDone);
    if (done == nullptr || done->order > launch->order) {
      return Finding(launched + describe_operation(*before) +
                     " was complete: with overlap = false " + how)
          .at(launch, "launched too early");
    }
    before = launch;
  }
  return "";
}

}  // namespace ddp::testing
