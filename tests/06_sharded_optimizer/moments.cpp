#include <algorithm>
#include <set>

#include "shards.h"
#include "support/training_evidence.h"

// When buckets are launched.

namespace ddp::testing {

namespace {

std::string wrong_moment(const TrainingStep& step, const std::vector<Bucket>& buckets) {
  const std::vector<const Seen*> ready = ready_outside(step);
  const std::vector<const Seen*> launches = launches_of(step).reduce_scatters;
  std::size_t may_start = 0;  // place in `ready` from which on all buckets so far may be launched
  for (std::size_t b = 0; b < std::min(buckets.size(), launches.size()); ++b) {
    const auto last = last_ready(ready, buckets[b].layers);
    const auto empty = last_ready(ready, buckets[b].empty_before);
    may_start = std::max({may_start, last.value_or(ready.size()), empty.value_or(ready.size())});
    const Seen& launch = *launches[b];
    const bool in_step = launch.place.phase == Phase::kFinish;
    if (!in_step && (!last || launch.order < ready[*last]->order)) {
      return name_of(buckets, b) +
             ": its reduce-scatter started before its last gradient was ready";
    }
    if (may_start >= ready.size()) {
      continue;
    }
    const bool is_last = may_start + 1 == ready.size();
    const Seen* next = is_last ? step.goes_on : ready[may_start + 1];
    if (in_step || (next != nullptr && launch.order > next->order)) {
      return name_of(buckets, b) +
             ": its reduce-scatter started too late: the bucket was complete, " +
             "and its turn, with the gradient of " + layer(ready[may_start]->index) + ", but " +
             (in_step   ? "backward had ended"
              : is_last ? "backward had gone on"
                        : "that of " + layer(next->index) + " was ready") +
             " before it started";
    }
  }
  return "";
}

const Seen* first_of(const Evidence& evidence, int rank, const Seen& launch, EventKind kind) {
  for (const Seen& seen : evidence.of[rank]) {
    if (seen.kind == kind && seen.operation == launch.operation) {
      return &seen;
    }
  }
  return nullptr;
}

// The facts of a rank's step with this name, in order.
std::vector<const Seen*> facts_of(const Evidence& evidence, const TrainingOfRank& training,
                                  const Place& place, const char* name) {
  std::vector<const Seen*> facts;
  for (const Seen& seen : evidence.of[training.rank]) {
    if (seen.kind == EventKind::kFact && seen.text == name && seen.place.step == place.step &&
        seen.place.model == place.model) {
      facts.push_back(&seen);
    }
  }
  return facts;
}

}  // namespace

std::string in_plan_order(const Evidence& evidence) {
  return first_in_buckets(
      evidence,
      [&](const TrainingOfRank& training, const TrainingStep& step,
          const std::vector<Bucket>& buckets) -> std::string {
        const std::size_t ranks = ranks_of(evidence, training);
        const Launches launches = launches_of(step);
        const auto wrong = [&](const char* kind, const std::vector<const Seen*>& own,
                               std::size_t chunks) -> std::string {
          const auto actual = bytes_of(own);
          const auto expected = bytes_of(buckets, chunks);
          return !std::ranges::is_permutation(actual, expected) || actual == expected
                     ? ""
                     : std::string(kind) +
                           "s did not start in the order of the plan, in which a bucket that is " +
                           "complete early waits its turn. Expected: " + listed(expected) +
                           "; got: " + listed(actual);
        };
        std::string text = wrong("reduce-scatter", launches.reduce_scatters, ranks);
        text = text.empty() ? wrong("all-gather", launches.all_gathers, 1) : text;
        if (!text.empty() || launches.reduce_scatters.empty()) {
          return text;
        }
        const Seen& last = *launches.reduce_scatters.back();
        for (const Seen* gather : launches.all_gathers) {
          if (gather->order < last.order) {
            return describe_operation(*gather) + " started before " + describe_operation(last) +
                   ": step() launches all that is left to reduce first";
          }
        }
        for (const Seen* launch : launches.reduce_scatters) {
          const Seen* wait = first_of(evidence, training.rank, *launch, EventKind::kWait);
          if (training.others.contains("overlap") && wait != nullptr && wait->home &&
              wait->order < last.order && wait->place.phase == Phase::kFinish) {
            return "step() waited for " + describe_operation(*launch) + " before it launched " +
                   describe_operation(last) + ": those that are left can be on their way together";
          }
        }
        return "";
      });
}

std::string with_its_last_gradient(const Evidence& evidence) {
  return first_in_buckets(
      evidence,
      [&](const TrainingOfRank& training, const TrainingStep& step,
          const std::vector<Bucket>& buckets) -> std::string {
        if (std::string text = wrong_moment(step, buckets); !text.empty()) {
          return text;
        }
        const std::vector<const Seen*> launches = launches_of(step).reduce_scatters;
        if (launches.empty() && !buckets.empty()) {
          return "no reduce-scatter started";
        }
        for (std::size_t b = 0; b < std::min(buckets.size(), launches.size()); ++b) {
          const Seen& launch = *launches[b];
          const std::set<std::int64_t> own(buckets[b].layers.begin(), buckets[b].layers.end());
          for (const Seen* kept : facts_of(evidence, training, launch.place, "gradient is kept")) {
            const std::int64_t index = training.listed.at(kept->index);
            if (launch.place.phase == Phase::kBackward && own.contains(index)) {
              return "the gradient of " + layer(index) +
                     " is still there after backward, although its bucket's reduce-scatter has "
                     "started: then nobody needs it, and a rank holds all gradients";
            }
          }
          for (const Seen* left : facts_of(evidence, training, launch.place, "gradient is left")) {
            if (const std::int64_t index = training.listed.at(left->index);
                training.trainable.contains(index) && training.parameter.at(index).numel() > 0) {
              return "the gradient of " + layer(index) + " is still defined after step()";
            }
          }
        }
        return "";
      });
}

std::string with_its_update(const Evidence& evidence) {
  return first_in_buckets(
      evidence,
      [&](const TrainingOfRank& training, const TrainingStep& step,
          const std::vector<Bucket>& buckets) -> std::string {
        const std::vector<const Seen*> gathers = launches_of(step).all_gathers;
        if (gathers.empty() && !buckets.empty()) {
          return "no all-gather started";
        }
        if (gathers.size() != buckets.size() || gathers.empty()) {
          return "";  // another claim's business
        }
        const auto updates = facts_of(evidence, training, gathers[0]->place, "update");
        if (updates.size() != buckets.size()) {
          return std::to_string(updates.size()) + " optimizers took a step, and there are " +
                 std::to_string(buckets.size()) + " buckets";
        }
        for (std::size_t b = 0; b < buckets.size(); ++b) {
          if (gathers[b]->order < updates[b]->order) {
            return name_of(buckets, b) + ": its all-gather started before its optimizer's step";
          }
          if (b + 1 < buckets.size() && gathers[b]->order > updates[b + 1]->order) {
            return name_of(buckets, b) +
                   ": its all-gather started only after the step of the next " +
                   "bucket's optimizer, although its shard was new before";
          }
        }
        return "";
      });
}

std::string after_backward_one_by_one(const Evidence& evidence) {
  return first_in_buckets(
      evidence,
      [&](const TrainingOfRank& training, const TrainingStep& step,
          const std::vector<Bucket>&) -> std::string {
        const Seen* before = nullptr;
        for (const Seen* launch : step.launches) {
          if (launch->place.phase != Phase::kFinish) {
            return describe_operation(*launch) +
                   " was launched before step(), with overlap = false";
          }
          if (before != nullptr) {
            const Seen* done = first_of(evidence, training.rank, *before, EventKind::kDone);
            if (done == nullptr || done->order > launch->order) {
              return describe_operation(*launch) + " was launched before " +
                     describe_operation(*before) +
                     " was complete: with overlap = false one follows the other";
            }
          }
          before = launch;
        }
        return "";
      });
}

}  // namespace ddp::testing
