#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/training_evidence.h"

// What the claims on Trainings are made of.

namespace ddp::testing {

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
