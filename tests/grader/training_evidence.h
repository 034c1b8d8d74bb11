#pragma once

#include <gtest/gtest.h>

#include <compare>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ddp/libtorch_versions.h"
#include "ddp/referee/evidence.h"
#include "grader/compare.h"
#include "grader/evidence_view.h"
#include "grader/finding.h"

// The evidence of a Training (grader/training.h), and what the claims on it are made of.

namespace ddp::testing {

// What a Training tells: tensors by layer, or by buffer, of the model and of each step ...
constexpr ValueKey kStart{"start"}, kParameter{"parameter"};  // before construction, and after it
constexpr ValueKey kInitialBuffer{"initial buffer"}, kBuffer{"buffer"};
constexpr ValueKey kLocal{"local"};        // the rank's gradients before communication
constexpr ValueKey kGradient{"gradient"};  // after finish()
constexpr ValueKey kUpdated{"updated"};    // parameters, where the code under test updates them
constexpr ValueKey kAlone{"alone"};        // gradients of a backward without a synchronizer

// ... and numbers.
constexpr FactKey kTrainable{"trainable"};  // whether a layer is
constexpr FactKey kListed{"listed"};        // the layers, as given to the synchronizer
constexpr FactKey kNoGradients{"gradients are none"};
constexpr FactKey kGoesOn{"backward goes on"};           // after the last gradient
constexpr FactKey kStridedGradient{"strided gradient"};  // before communication: a hash of strides
constexpr FactKey kDestroyed{"destroyed"};
constexpr const char* kStrided = "strided ";  // a parameter or buffer that is not contiguous
constexpr const char* kMoved = "moved ";      // one whose elements are elsewhere after construction

/// What an all-reduce carries.
struct Payload {
  std::int64_t elements = 0;
  at::ScalarType dtype = at::ScalarType::Undefined;
  // NOLINTNEXTLINE(modernize-use-nullptr): where should one be?
  auto operator<=>(const Payload&) const = default;
};

/// "12 float32".
std::string to_string(const Payload& payload);

/// Takes `payload` out of the list; false if it is not there.
bool take(std::vector<Payload>& payloads, const Payload& payload);

/// One model on a rank, and what happened from one finish() to the next.
using TrainingOfRank = RankSaid;
using TrainingStep = Said;

/// The models of all ranks.
const Parts& trainings_in(const Evidence& evidence);

/// Layers, as a Training tells of them.
std::set<std::int64_t> trainable(const TrainingOfRank& training);
std::vector<std::int64_t> listed(const TrainingOfRank& training);

/// Steps that every rank has ended.
std::vector<int> whole_steps(const std::vector<TrainingOfRank>& ranks);

/// Gradients that backward computed and the caller kept, in order.
Events ready_in(const TrainingStep& step);
/// Whether finish() has returned.
bool has_ended(const TrainingStep& step);

/// One line for each operation, such as "\n    all-reduce #3 of the gradient of layer 2 (192
/// bytes), float32"; " nothing" for none. `end` says what ends each line; by default the dtype.
std::string list_of(
    const Events& launches,
    const std::function<std::string(const Seen&)>& end = [](const Seen& launch) {
      return std::string(", ") + dtype_name(launch.dtype);
    });

/// "layer 2".
std::string layer(std::int64_t index);

/// "rank 1, step 2".
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

/// After what a launch came that is later than its turn: "the end of backward"; empty if it is not.
std::string late_for(const Turn& turn, const Seen& launch);

/// The first event of a kind that is about an operation of a rank; null if there is none.
const Seen* first_of(const Evidence& evidence, int rank, std::int64_t operation, EventKind kind);

/// The last event of a rank in a step; null if there is none.
const Seen* last_in_step(const Evidence& evidence, int rank, int step);

/// What `check` finds in the first step of any model, among those that all ranks have ended.
Finding first_in_steps(
    const Evidence& evidence,
    const std::function<Finding(const std::vector<TrainingOfRank>& ranks, int step)>& check);

/// What `check` finds in the first training on any rank; `ranks` have the same model.
Finding first_training(
    const Evidence& evidence,
    const std::function<Finding(const TrainingOfRank& training,
                                const std::vector<TrainingOfRank>& ranks)>& check);

/// "rank 1, step 2: " and what `check` finds in the first step of any model and rank, ended or not; `ranks`
/// have the model.
using CheckOfStep = std::function<Finding(const TrainingOfRank& training, const TrainingStep& step,
                                          std::size_t ranks)>;
Finding first_on_ranks(const Evidence& evidence, const CheckOfStep& check);

}  // namespace ddp::testing
