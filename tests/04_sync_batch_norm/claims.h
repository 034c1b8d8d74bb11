#pragma once

#include <functional>
#include <string>
#include <vector>

#include "grader/evidence_view.h"
#include "scenarios.h"

// The evidence of uses; what it should have been; and what must be true of it.

namespace ddp::testing {

/// One use on a rank.
struct UseOnRank : RankSaid {
  UseOnRank(RankSaid said, int index);

  int index = 0;  // among those of a scenario
  bool training = false, of_module = false;
  double momentum = 0;  // NaN for the cumulative average
  double eps = 0;
  bool wants_input = false;
  int backwards = 0;
  std::string note;
  Events forward, backward;  // launches

  /// Undefined if it was not handed in.
  at::Tensor at(const std::string& name, Moment moment) const;
  /// In float64.
  at::Tensor wide(const std::string& name, Moment moment = kBefore) const;
};

/// One use on all ranks of its group, in the group's order; one rank's alone in evaluation.
using Batch = std::vector<UseOnRank>;

/// The uses of a scenario that all their ranks have ended, in order.
const std::vector<Batch>& batches_in(const Evidence& evidence);

/// "rank 1, use 2 (training by the function, float32 [6, 3, 2] on rank 0; ...)".
std::string describe(const Batch& batch, const UseOnRank& use);

/// What a tensor should be, computed in float64 from what the ranks handed in, and how far from it
/// the result may be: 1e-10 in float64, else 1e-3 + 4 eps |mean| / std and a rounding.
struct Expected {
  at::Tensor value, tolerance;
};

/// Of the output, a gradient or a running statistic by its name; undefined where it is not due.
Expected expected(const Batch& batch, const UseOnRank& use, const std::string& name);

/// What is wrong with the tensors of these names, of one use; or nothing.
Finding wrong_values(const Batch& batch, const std::vector<std::string>& names);

// Claims: each says what is wrong, or nothing.

enum Mode { kEvaluation, kTraining };

/// What `check` finds in the first batch of a mode.
Predicate in_batches(Mode mode, std::function<Finding(const Batch&)> check);

/// Tensors of these names are right; without any, all tensors are.
Predicate right(Mode mode, const std::vector<std::string>& names = {});
/// In both modes.
Predicate all_right();

/// These keep what does nothing from passing claims that something does not happen.
Finding something_is_normalized(const Batch& batch);
Finding something_is_communicated(const Evidence& evidence);

/// Forward in training changes running statistics and counter, in place; nothing else changes.
Finding nothing_else_changes(const Batch& batch);
/// The running statistics have the same bits.
Finding same_on_all_ranks(const Batch& batch);

Finding one_collective_each_way(const Batch& batch);
Finding nothing_is_left_in_flight(const Evidence& evidence);
Finding life_is_silent(const Evidence& evidence);
Finding evaluation_is_silent(const Batch& batch);
/// Makes claims on what evaluation computes meaningless.
Finding evaluation_communicates(const Evidence& evidence);
Finding graph_keeps_the_group(const Evidence& evidence);

}  // namespace ddp::testing
