#include <algorithm>

#include "claims.h"
#include "grader/training_evidence.h"

// When buckets are launched.

namespace ddp::testing {

namespace {

Finding wrong_moment(const StepOfRank& of) {
  std::vector<std::vector<std::int64_t>> layers;
  for (const Bucket& bucket : of.buckets) {
    layers.push_back(bucket.empty_before);
    layers.push_back(bucket.layers);
  }
  const std::vector<Turn> turns = turns_of(of.step, layers);
  for (std::size_t b = 0; b < std::min(of.buckets.size(), of.reduce_scatters.size()); ++b) {
    const Turn& turn = turns[2 * b + 1];
    const Seen& launch = *of.reduce_scatters[b];
    const std::string name = name_of(of.buckets, b) + ": its reduce-scatter started ";
    if (launch.place.phase != Phase::kFinish &&
        (turn.complete == nullptr || launch.order < turn.complete->order)) {
      return Finding(name + "before its last gradient was ready").at(&launch, "launched too early");
    }
    if (const std::string late = late_for(turn, launch); !late.empty()) {
      return Finding(
                 c10::str(name,
                          "too late: the bucket was complete, and its turn, with the gradient of ",
                          layer(turn.due->index), ", but ", late, " before it started"))
          .at(&launch, "launched too late");
    }
  }
  return "";
}

const Seen* first_of(const StepOfRank& step, const Seen& launch, EventKind kind) {
  return testing::first_of(step.evidence, step.training.rank, launch.operation, kind);
}

// The facts of a rank's step with this name, in order.
std::vector<const Seen*> facts_of(const StepOfRank& step, const Place& place, const char* name) {
  std::vector<const Seen*> facts;
  for (const Seen& seen : step.evidence.of[step.training.rank]) {
    if (seen.kind == EventKind::kFact && seen.text == name && seen.place.step == place.step &&
        seen.place.model == place.model) {
      facts.push_back(&seen);
    }
  }
  return facts;
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
  for (const Seen* launch : step.reduce_scatters) {
    const Seen* wait = first_of(step, *launch, EventKind::kWait);
    if (step.overlaps() && wait != nullptr && wait->home && wait->order < last.order &&
        wait->place.phase == Phase::kFinish) {
      return Finding("step() waited for " + describe_operation(*launch) + " before it launched " +
                     describe_operation(last) +
                     ": those that are left can be on their way together")
          .at(&last, "launched too late");
    }
  }
  return "";
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
    for (const Seen* kept : facts_of(step, launch.place, "gradient is kept")) {
      const std::int64_t index = step.training.listed.at(kept->index);
      if (launch.place.phase == Phase::kBackward &&
          std::ranges::count(step.buckets[b].layers, index) > 0) {
        return "the gradient of " + layer(index) +
               " is still there after backward, although its bucket's reduce-scatter has started: "
               "then nobody needs it, and a rank holds all gradients";
      }
    }
    for (const Seen* left : facts_of(step, launch.place, "gradient is left")) {
      const std::int64_t index = step.training.listed.at(left->index);
      if (step.training.trainable.contains(index) &&
          step.training.parameter.at(index).numel() > 0) {
        return "the gradient of " + layer(index) + " is still defined after step()";
      }
    }
  }
  return "";
}

Finding with_its_update(const StepOfRank& step) {
  const std::vector<const Seen*>& gathers = step.all_gathers;
  const std::size_t buckets = step.buckets.size();
  if (gathers.empty() && buckets > 0) {
    return "no all-gather started";
  }
  if (gathers.size() != buckets || gathers.empty()) {
    return "";  // another claim's business
  }
  const auto updates = facts_of(step, gathers[0]->place, "update");
  if (updates.size() != buckets) {
    return std::to_string(updates.size()) + " optimizers took a step, and there are " +
           std::to_string(buckets) + " buckets";
  }
  for (std::size_t b = 0; b < buckets; ++b) {
    if (gathers[b]->order < updates[b]->order) {
      return Finding(name_of(step.buckets, b) +
                     ": its all-gather started before its optimizer's step")
          .at(gathers[b], "launched too early");
    }
    if (b + 1 < buckets && gathers[b]->order > updates[b + 1]->order) {
      return Finding(name_of(step.buckets, b) +
                     ": its all-gather started only after the step of the next bucket's optimizer, "
                     "although its shard was new before")
          .at(gathers[b], "launched too late");
    }
  }
  return "";
}

Finding after_backward_one_by_one(const StepOfRank& step) {
  const Seen* before = nullptr;
  for (const Seen* launch : step.step.launches) {
    if (launch->place.phase != Phase::kFinish) {
      return Finding(describe_operation(*launch) +
                     " was launched before step(), with overlap = false")
          .at(launch, "launched too early");
    }
    if (before != nullptr) {
      const Seen* done = first_of(step, *before, EventKind::kDone);
      if (done == nullptr || done->order > launch->order) {
        return Finding(describe_operation(*launch) + " was launched before " +
                       describe_operation(*before) +
                       " was complete: with overlap = false one follows the other")
            .at(launch, "launched too early");
      }
    }
    before = launch;
  }
  return "";
}

}  // namespace ddp::testing
