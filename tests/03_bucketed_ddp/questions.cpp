#include "grader/questions.h"

#include <algorithm>

#include "buckets.h"

// What to ask about the moments at which buckets leave.

namespace ddp::testing {

namespace {

struct Sent {
  std::size_t number = 0;  // in the plan
  Bucket bucket;
  const Seen* launch = nullptr;
  std::vector<const Seen*> ready;     // its gradients, in their order
  std::vector<std::int64_t> missing;  // those that backward never computed
};

// The buckets of a step in which each was launched once, in plan order; else nothing.
std::vector<Sent> buckets_sent(const TrainingOfRank& training, const TrainingStep& step) {
  std::vector<Sent> all;
  const std::vector<Bucket> buckets = buckets_of(training);
  for (std::size_t b = 0; b < buckets.size() && step.launches.size() == buckets.size(); ++b) {
    Sent sent{b, buckets[b], step.launches[b], {}, {}};
    if (!is_all_reduce(*sent.launch) || sent.launch->elements != buckets[b].payload.elements) {
      return {};
    }
    for (const std::int64_t layer : buckets[b].layers) {
      const auto found =
          std::ranges::find(step.ready, layer, [](const Seen* seen) { return seen->index; });
      found == step.ready.end() ? sent.missing.push_back(layer) : sent.ready.push_back(*found);
    }
    std::ranges::sort(sent.ready, {}, [](const Seen* seen) { return seen->order; });
    all.push_back(sent);
  }
  return all;
}

// "layers 4, 3 and 1".
std::string layers_of(const std::vector<std::int64_t>& layers) {
  std::string text = layers.size() == 1 ? "layer " : "layers ";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == layers.size() ? " and " : ", ") + std::to_string(layers[i]);
  }
  return text;
}

std::string bucket_of_layers(const Sent& sent) {
  return "bucket " + std::to_string(sent.number) + " (" + layers_of(sent.bucket.layers) + ")";
}

std::string left_before(const Sent& sent, const Seen& later) {
  return bucket_of_layers(sent) + " has all its gradients with that of layer " +
         std::to_string(sent.ready.back()->index) +
         ", which came before, and the buckets before it "
         "in the plan had left. Layer " +
         std::to_string(later.index) + " is in a later bucket, which it does not wait for.";
}

bool any_between(const TrainingStep& step, const Seen& first, const Seen& last) {
  return std::ranges::any_of(step.ready, [&](const Seen* ready) {
    return ready->order > first.order && ready->order < last.order;
  });
}

// The first gradient after the launch of a bucket that left with its own last one; of a later bucket.
const Seen* later_gradient(const TrainingStep& step, const std::vector<Sent>& all,
                           const Sent& sent) {
  const auto later = std::ranges::find_if(
      step.ready, [&](const Seen* ready) { return ready->order > sent.launch->order; });
  if (!sent.missing.empty() || later == step.ready.end() ||
      sent.ready.back()->order > sent.launch->order ||
      any_between(step, *sent.ready.back(), *sent.launch)) {
    return nullptr;
  }
  const bool is_later = std::ranges::any_of(all, [&](const Sent& other) {
    return other.number > sent.number &&
           std::ranges::find(other.bucket.layers, (*later)->index) != other.bucket.layers.end();
  });
  return is_later ? *later : nullptr;
}

bool has_waited(const TrainingStep& step, const std::vector<Sent>& all, const Sent& sent) {
  return sent.number > 0 && sent.missing.empty() &&
         all[sent.number - 1].launch->order > sent.ready.back()->order &&
         any_between(step, *sent.ready.back(), *sent.launch);
}

std::vector<Question> about_buckets(const Evidence& evidence, const TrainingOfRank& training,
                                    int number) {
  const TrainingStep& step = training.steps.at(number);
  const auto course = course_of(evidence, training, number);
  std::vector<Question> asked;
  const std::vector<Sent> all = buckets_sent(training, step);
  for (const Sent& sent : all) {
    const std::string name = bucket_of_layers(sent);
    const std::string where = on_rank_in_step(training, number) + name;
    if (const Seen* later = later_gradient(step, all, sent)) {
      asked.push_back({"a bucket that leaves early",
                       where + " left before the gradient of layer " +
                           std::to_string(later->index) +
                           " was ready. Why could it, and why not one gradient earlier?",
                       left_before(sent, *later), course});
    }
    if (has_waited(step, all, sent)) {
      asked.push_back(
          {"a bucket that waits for its turn",
           where + " was complete with the gradient of layer " +
               std::to_string(sent.ready.back()->index) +
               ", and left only later. What was it waiting for, and what could happen if it had "
               "not "
               "waited?",
           "For its turn: " + bucket_of_layers(all[sent.number - 1]) +
               " comes before it in the plan and had not left. Gradients come in another order on "
               "each rank, so ranks that launch what is full first would pair different buckets "
               "with "
               "each other.",
           course});
    }
    if (!sent.missing.empty() && sent.launch->place.phase == Phase::kFinish) {
      asked.push_back({"a bucket that finish() launches",
                       where + " left in finish(). Which hooks did not come, what was sent in "
                               "their place, and why must the bucket be sent at all?",
                       "Those of " + layers_of(sent.missing) +
                           ", which this rank did not use in the step: zeros. Another rank may "
                           "have used them, and waits for all ranks' part of the bucket.",
                       course});
    }
  }
  return asked;
}

const Questions kAboutBuckets{
    {"three layers, three steps", "each: three layers, three steps",
     "layers in another order than the plan's, cap 60",
     "layers in another order on each rank, cap 60", "layers that one of four ranks uses"},
    of_each_step(about_buckets)};

}  // namespace

}  // namespace ddp::testing
