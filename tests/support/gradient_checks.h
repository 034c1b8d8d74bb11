#pragma once

#include <vector>

#include "support/oracle.h"
#include "support/trainee.h"

// What every gradient synchronizer must do, whatever it communicates and when: checks shared by the
// tests of stages 01-03. All are collective: every rank of a world calls them.

namespace ddp::testing {

/// Each rank starts with different parameters and buffers. Construction must give all of them rank
/// 0's values, bit for bit and in place.
void expect_state_of_rank_0(Rank& rank, ToyKind kind, at::ScalarType dtype,
                            const MakeSynchronizer& make);

/// After backward of step 0 and finish(): every gradient is the oracle's mean over the ranks.
void expect_mean_gradients(const Trainee& trainee, Oracle& oracle, int world_size);

/// Trains one step of a new model, and compares with the oracle as above.
void expect_mean_gradients(Rank& rank, ToyKind kind, at::ScalarType dtype,
                           const MakeSynchronizer& make);

/// A gradient has its parameter's memory layout, which need not be row-major.
void expect_mean_of_transposed(Rank& rank, const MakeSynchronizer& make);

/// After one step of a new model all gradients are bitwise equal on all ranks.
void expect_bitwise_equal_gradients(Rank& rank, ToyKind kind, at::ScalarType dtype,
                                    const MakeSynchronizer& make);

/// Five steps of plain SGD, setting the gradients alternately to zero and to none, end at the
/// parameters of one process that trains with the oracle's means.
void expect_oracle_training(Rank& rank, ToyKind kind, at::ScalarType dtype,
                            const MakeSynchronizer& make);

/// Two micro-batches, the first inside NoSync, and one finish() too many each time: the sum of the
/// two, averaged once.
void expect_accumulated_gradient(Rank& rank, const MakeSynchronizer& make);

}  // namespace ddp::testing
