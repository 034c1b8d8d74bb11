#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ddp/simulation/virtual_time.h"
#include "support/training_evidence.h"

// What layers of several sizes cost in virtual time, and the networks that steps are timed on.

namespace ddp::testing {

/// Forward of all layers, and backward of a layer on a rank.
ComputeCost compute_cost(std::int64_t forward_ns,
                         std::function<std::int64_t(std::int64_t layer, int rank)> backward_ns);

/// Forward of all layers of a model.
std::int64_t forward_ns(const TrainingOfRank& training);

/// Backward of one layer; ranks with higher numbers are slower.
std::int64_t backward_ns(const TrainingOfRank& training, std::int64_t layer, int rank);

/// Both, where a rank computes them. `training` must outlive it.
ComputeCost layer_times(const TrainingOfRank& training);

/// What `check` finds on the first of several networks: a fast one, one with latency, and a slow one
/// of costly launches.
std::string on_each_network(const std::function<std::string(const NetworkModel& network)>& check);

/// That a step took another time than `expected`. `chain`: what it consists of; `longer`: what may make it
/// longer.
std::string off_the_chain(int step, std::int64_t took, std::int64_t expected,
                          const std::string& chain,
                          const std::string& longer =
                              "a launch that is late, a wait too many, or "
                              "another operation");

/// Where a rank should begin to compute something, in nanoseconds of a step; `name` is as VirtualTime has it.
struct Moment {
  std::string name;
  std::int64_t begin_ns;
};

/// "; first off it: ...": of all ranks what begins first at another time than it should.
std::string first_off(const VirtualTime& time, int step,
                      const std::map<int, std::vector<Moment>>& by_rank);

}  // namespace ddp::testing
