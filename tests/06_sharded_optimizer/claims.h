#pragma once

#include <string>
#include <vector>

#include "grader/buckets.h"
#include "grader/scenario.h"

// What must be true of each step: what is launched for which bucket, and when; and of values. Each
// function returns what is wrong, or nothing.

namespace ddp::testing {

/// "bucket 0 of 2, of layer 1".
std::string name_of(const Buckets& buckets, std::size_t b);

/// A step that a rank has ended: its buckets that have elements, and what it launched outside
/// NoSync, in order.
struct StepOfRank {
  const Evidence& evidence;
  const TrainingOfRank& training;
  const TrainingStep& step;
  std::size_t ranks;
  Buckets buckets;
  Events reduce_scatters = {}, all_gathers = {}, others = {};
};

/// What `check` finds in the first step that has ended, on any rank. One rank has nobody to talk to.
Predicate in_each_step(Finding (*check)(const StepOfRank& step));

/// What is wrong with the bytes that each rank puts in, in the order of their launch: as a set, or only
/// in their order.
enum class Compared { kAsSet, kInOrder };
Finding wrong_bytes(const StepOfRank& step, Compared how);

/// Every step leaves each bucket reduced once and gathered once, and nothing else is launched but what
/// clipping needs.
Finding each_bucket_once(const StepOfRank& step);

/// The factory was called once for each bucket, with a flat leaf of its N-th; after construction it has
/// rank 0's values of that chunk.
Finding each_bucket_has_a_shard(const Evidence& evidence);

/// Reduce-scatters in plan order, then all-gathers in plan order; step() launches all reduce-scatters
/// that are left, and then waits.
Finding in_plan_order(const StepOfRank& step);

/// A reduce-scatter starts with its bucket's last gradient, when it is its turn (a bucket without
/// elements need not, but may be waited for); the bucket's gradients are gone by then, and all are after
/// step().
Finding with_its_last_gradient(const StepOfRank& step);

/// A bucket's all-gather starts between its optimizer's step and the next one's.
Finding with_its_update(const StepOfRank& step);

/// Nothing is launched before step(), nor while anything is under way.
Finding after_backward_one_by_one(const StepOfRank& step);

/// After each step all parameters are where one process would have them, with the whole state of an
/// optimizer of the same kind and the mean of all ranks' gradients, clipped if that was asked for.
Finding parameters_are_the_unsharded_optimizers(const Evidence& evidence);

/// The same bit for bit, where no sum is rounded.
Finding parameters_are_the_same_bits(const Evidence& evidence);

/// Each is in the storage that it had.
Finding parameters_stay_in_place(const Evidence& evidence);

/// They have the same bits on all ranks.
Finding ranks_have_the_same_bits(const Evidence& evidence);

/// What clip_grad_norm() returned is the norm of the mean gradients.
Finding norm_is_that_of_the_means(const Evidence& evidence);

}  // namespace ddp::testing
