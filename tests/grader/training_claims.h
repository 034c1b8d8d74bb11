#pragma once

#include <string>

#include "ddp/referee/evidence.h"
#include "grader/finding.h"

// Claims on the evidence of Trainings that several of the stages 01-03 make. Each returns what is
// wrong, or nothing; see grader/scenario.h.

namespace ddp::testing {

/// After construction every parameter and buffer has rank 0's bits, in its own storage; and a
/// broadcast alone is no synchronizer: the first step that computes gradients reduces something.
Finding state_is_rank_0s(const Evidence& evidence);

/// Nobody but the caller changes parameters after construction, or buffers.
Finding state_is_left_alone(const Evidence& evidence);

/// After each finish() every gradient is the mean over the ranks of their own. One that no rank has
/// is undefined or zero; one that was frozen at construction is left alone.
Finding gradients_are_means(const Evidence& evidence);

/// The same of steps with micro-batches inside NoSync, where those without are right.
Finding accumulated_sums_are_averaged(const Evidence& evidence);

/// They have the same bits on all ranks.
Finding gradients_have_the_same_bits(const Evidence& evidence);

/// The first operation that was launched inside NoSync. Where there is one, other claims say nothing.
Finding launched_inside_no_sync(const Evidence& evidence);
/// Whether gradients were reduced there, so that others come out, and are rounded otherwise:
/// no_sync_is_silent() says so. Other operations excuse no value.
bool reduced_inside_no_sync(const Evidence& evidence);

/// Inside NoSync nothing is launched, and finish() changes no gradient.
Finding no_sync_is_silent(const Evidence& evidence);

/// Every step makes one all-reduce for each gradient that is due, of exactly its elements in its
/// dtype, and launches nothing else. Due is what backward has computed since the last step; what was
/// left from before may take part. A single rank may communicate nothing.
Finding one_all_reduce_for_each_gradient(const Evidence& evidence);

/// Every step in which backward computes gradients reduces something.
Finding every_step_reduces(const Evidence& evidence);

/// Nothing reads or writes a tensor between its launch and the wait for it, and every operation of a
/// step is complete when finish() returns.
Finding buffers_in_flight_are_left_alone(const Evidence& evidence);

/// The first half of that alone.
Finding nothing_in_flight_is_touched(const Evidence& evidence);

/// For `unless` of judge(): values say nothing if the above does not hold.
Finding misused_in_flight(const Evidence& evidence);

/// Backward never stands still until the network is done.
Finding backward_never_waits(const Evidence& evidence);

/// The destructor launches nothing.
Finding destruction_is_silent(const Evidence& evidence);

/// After the fact "destroyed" nothing is launched or thrown, and backward leaves the rank's own
/// gradients, handed in as "alone". The destructor launches nothing, and nothing_grows() with
/// synchronizers that are destroyed. Before it every step reduces something.
Finding destruction_ends_everything(const Evidence& evidence);

/// What a scenario counts three times (HeldMeter), each after 150 repetitions, does not grow.
Finding nothing_grows(const Evidence& evidence);
/// The same of a scenario that counts, as facts "held: <what>", three times after so many steps each. In
/// that many steps the allocator keeps less than `heap_noise` bytes for itself.
Finding growth_in_steps(const Evidence& evidence, int steps, std::int64_t heap_noise = 9'600);

/// Facts "bytes <what>" are no more than the last "bytes allowed", where <what> has `which` in it. Those
/// after kAlive are what it consists of: grader/memory_account.h.
constexpr const char* kAlive = "alive: ";
Finding memory_is_bounded(const Evidence& evidence, const std::string& which = "");

/// Backward launches something: else there is nothing that it could have waited for.
Finding backward_launches(const Evidence& evidence);

/// Every attempt() that must be refused threw c10::Error, before it launched anything, and says the
/// indices N and M if its name ends with "(index N, M)"; the others are listed. What needs a rank that has
/// failed throws, too.
Finding misuse_is_refused(const Evidence& evidence);

}  // namespace ddp::testing
