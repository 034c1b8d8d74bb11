#pragma once

#include <gtest/gtest.h>

#include <compare>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddp/libtorch_versions.h"
#include "ddp/referee/evidence.h"
#include "grader/compare.h"
#include "grader/finding.h"

// The evidence of a Training (grader/training.h), sorted, and what the claims on it are made of.

namespace ddp::testing {

/// Tensors that were handed in, by layer. An undefined one has an entry, too.
using Tensors = std::map<std::int64_t, at::Tensor>;

/// Facts on what is not contiguous: "strided parameter" of its index, and of a gradient before
/// communication, with a hash of its strides.
constexpr const char* kStrided = "strided ";
constexpr const char* kStridedGradient = "strided gradient";

/// What an all-reduce carries.
struct Payload {
  std::int64_t elements = 0;
  at::ScalarType dtype = at::ScalarType::Undefined;
  // NOLINTNEXTLINE(modernize-use-nullptr): where should one be?
  auto operator<=>(const Payload&) const = default;
};

/// Takes `payload` out of the list; false if it is not there.
bool take(std::vector<Payload>& payloads, const Payload& payload);

/// What happened in a rank from one finish() to the next.
struct TrainingStep {
  Tensors local;                      // the rank's gradients before communication
  Tensors gradient;                   // after finish()
  Tensors updated;                    // parameters, where the code under test updates them
  Tensors alone;                      // after a backward without a synchronizer
  std::vector<const Seen*> ready;     // gradients that backward computed and the caller kept
  std::vector<const Seen*> launches;  // operations of any kind, in order
  const Seen* goes_on = nullptr;      // backward, after the last gradient
  std::map<std::int64_t, std::int64_t>
      strided;                      // gradients that are not contiguous: a hash of strides
  bool ended = false;               // with finish()
  const Seen* handed_in = nullptr;  // the last gradient after it
};

/// One model on a rank.
struct TrainingOfRank {
  void add(const Seen& seen);
  bool counts() const { return !start.empty(); }

  int rank = 0;
  int group = 0;
  std::set<std::int64_t> trainable;
  std::vector<std::int64_t> listed;  // the layers, as given to the synchronizer
  Tensors start, parameter, initial_buffer, buffer;
  std::set<std::string> strided;             // "parameter 3": what of the state is not contiguous
  std::map<std::string, at::Tensor> others;  // handed in by the stage's factory
  std::vector<const Seen*> construction;     // operations launched by it
  std::map<int, TrainingStep> steps;
};

/// What `sort` makes of the evidence of a scenario, made once: every claim asks for it, and evidence is
/// kept as long as the program runs.
template <typename Sorted>
const Sorted& sorted_once(const Evidence& evidence, Sorted (*sort)(const Evidence&)) {
  static std::map<const Evidence*, Sorted> all;
  const auto found = all.find(&evidence);
  return found != all.end() ? found->second : all[&evidence] = sort(evidence);
}

/// Splits the evidence by `number_of`, such as that of a model or call (negative: ignored), then by rank in
/// the order of the group. Drops parts without `counts()`.
template <typename Part>
std::map<int, std::vector<Part>> parts_of(const Evidence& evidence,
                                          int (*number_of)(const Seen& seen)) {
  std::map<int, std::map<int, Part>> sorted;  // by number, then rank
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      if (const int number = number_of(seen); number >= 0) {
        Part& part = sorted[number][static_cast<int>(rank)];
        part.rank = static_cast<int>(rank);
        part.add(seen);
      }
    }
  }
  std::map<int, std::vector<Part>> parts;
  for (auto& [number, by_rank] : sorted) {
    std::erase_if(by_rank, [](const auto& entry) { return !entry.second.counts(); });
    const int group = by_rank.empty() ? 0 : by_rank.begin()->second.group;
    for (const int rank : members_of(evidence.world, group)) {
      if (const auto found = by_rank.find(rank); found != by_rank.end()) {
        parts[number].push_back(std::move(found->second));
      }
    }
  }
  return parts;
}

/// The models of all ranks: by model, then the ranks that have it, in the order of its group.
using TrainingsByModel = std::map<int, std::vector<TrainingOfRank>>;
const TrainingsByModel& trainings_in(const Evidence& evidence);

/// "rank 1, step 2".
std::string where(const Seen& seen, int rank);

/// One line for each operation, such as "\n    all-reduce #3 of the gradient of layer 2 (192
/// bytes), float32"; " nothing" for none. `end` says what ends each line; by default the dtype.
std::string list_of(
    const std::vector<const Seen*>& launches,
    const std::function<std::string(const Seen&)>& end = [](const Seen& launch) {
      return std::string(", ") + dtype_name(launch.dtype);
    });

/// "layer 2".
std::string layer(std::int64_t index);

/// "rank 1", "rank 1, step 2".
std::string on(const TrainingOfRank& training);
std::string in(const TrainingOfRank& training, int step);

/// The message of a comparison that failed, or nothing.
inline Finding said(const Comparison& comparison) { return comparison.difference(); }

/// When a bucket may be launched in a step: with the gradient that makes all buckets so far complete,
/// and before backward goes on.
struct Turn {
  const Seen* complete = nullptr;  // its own last gradient; null: that never came
  const Seen* due = nullptr;       // null: in finish()
  const Seen* next = nullptr;      // what backward did after `due`; null: that is unknown
};

/// Of buckets of these layers, which go in this order.
std::vector<Turn> turns_of(const TrainingStep& step,
                           const std::vector<std::vector<std::int64_t>>& layers_of_buckets);

/// How a launch that comes after its turn is late: "backward had ended"; empty if it is not.
std::string late_for(const Turn& turn, const Seen& launch);

/// The first event of a kind that is about an operation of a rank; null if there is none.
const Seen* first_of(const Evidence& evidence, int rank, std::int64_t operation, EventKind kind);

/// The last event of a rank in a step; null if there is none.
const Seen* last_in_step(const Evidence& evidence, int rank, int step);

/// What `check` finds in the first step of any model, among those that all ranks have ended.
Finding first_in_steps(
    const Evidence& evidence,
    const std::function<Finding(const std::vector<TrainingOfRank>& ranks, int step)>& check);

/// "rank 1, step 2: " and what `check` finds in the first step of any model and rank, ended or not; `ranks`
/// have the model.
using CheckOfStep = std::function<Finding(const TrainingOfRank& training, const TrainingStep& step,
                                          std::size_t ranks)>;
Finding first_on_ranks(const Evidence& evidence, const CheckOfStep& check);

/// What `describe` says of the first event of a kind on any rank, which is what the finding is about.
Finding first_event(const Evidence& evidence, EventKind kind,
                    const std::function<Finding(const Seen& seen, int rank)>& describe);

}  // namespace ddp::testing
