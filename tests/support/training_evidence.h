#pragma once

#include <gtest/gtest.h>

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ddp/libtorch_versions.h"
#include "ddp/referee/evidence.h"

// The evidence of a Training (support/training.h), sorted, and what the claims on it are made of.

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
      strided;         // gradients that are not contiguous: a hash of strides
  bool ended = false;  // with finish()
};

/// One model on a rank.
struct TrainingOfRank {
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

/// What `sort` makes of the evidence of a body, made once: every claim asks for it, and evidence is
/// kept as long as the program runs.
template <typename Sorted>
const Sorted& sorted_once(const Evidence& evidence, Sorted (*sort)(const Evidence&)) {
  static std::map<const Evidence*, Sorted> all;
  const auto found = all.find(&evidence);
  return found != all.end() ? found->second : all[&evidence] = sort(evidence);
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
std::string said(const ::testing::AssertionResult& result);

/// The gradients that backward computed outside NoSync, in order.
std::vector<const Seen*> ready_outside(const TrainingStep& step);

/// The place in `ready` of the last of these layers' gradients; nothing if one never came.
std::optional<std::size_t> last_ready(const std::vector<const Seen*>& ready,
                                      const std::vector<std::int64_t>& layers);

/// What `check` finds in the first step of any model, among those that all ranks have ended.
std::string first_in_steps(
    const Evidence& evidence,
    const std::function<std::string(const std::vector<TrainingOfRank>& ranks, int step)>& check);

/// What `check` finds in the first step of any model and rank, ended or not; `ranks` have the model.
std::string first_on_ranks(
    const Evidence& evidence,
    const std::function<std::string(const TrainingOfRank& training, const TrainingStep& step,
                                    int number, std::size_t ranks)>& check);

/// What `describe` says of the first event of a kind on any rank.
std::string first_event(const Evidence& evidence, EventKind kind,
                        const std::function<std::string(const Seen& seen, int rank)>& describe);

}  // namespace ddp::testing
