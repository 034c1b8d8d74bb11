#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddp/virtual_time/virtual_time.h"
#include "grader/training_evidence.h"

// How long steps take by the contract, in virtual time: what layers of several sizes cost, the networks
// that steps are timed on, and the chain of all ranks' launches.

namespace ddp::testing {

/// The moments that a contract implies: by the clocks of ranks that go through the same operations, and
/// by that of the network, which carries one after another.
class Chain {
 public:
  Chain(const NetworkModel& network, std::size_t ranks)
      : network_(network), clocks_(ranks), moments_(ranks) {}

  /// Each rank computes for so long, by its place among them; `name` is as VirtualTime has it.
  void compute(const std::function<std::int64_t(std::size_t place)>& ns,
               const std::string& name = "");
  /// All ranks launch; when the last one has.
  std::int64_t launch();
  /// Carries what the last rank has launched then; when it is done.
  std::int64_t carry(c10d::OpType type, std::int64_t bytes, std::int64_t launched);
  /// Both.
  std::int64_t run(c10d::OpType type, std::int64_t bytes) { return carry(type, bytes, launch()); }
  /// All ranks wait until then.
  void wait(std::int64_t until);
  /// Forward and backward of a step, in which each bucket, if there are some, is launched as soon as it
  /// and those before it are complete. Returns when the last rank has launched each.
  std::vector<std::int64_t> launch_in_backward(
      const std::vector<TrainingOfRank>& ranks, int step,
      const std::vector<std::vector<std::int64_t>>& layers_of_buckets);

  /// When a rank, by its place, begins to compute what has a name.
  struct Moment {
    std::string name;
    std::int64_t begin_ns;
  };
  const std::vector<Moment>& moments(std::size_t place) const { return moments_.at(place); }

  /// By the slowest rank's clock.
  std::int64_t now() const;
  /// When the network is done.
  std::int64_t network_is_free() const { return free_; }
  const NetworkModel& network() const { return network_; }
  /// What it has carried, to be drawn.
  const std::vector<Span>& carried() const { return carried_; }

 private:
  NetworkModel network_;
  std::vector<std::int64_t> clocks_;
  std::vector<std::vector<Moment>> moments_;
  std::int64_t free_ = 0;
  std::vector<Span> carried_;
};

/// `finding`, also one that is empty, with what a picture shows of the step: how long it is to take, by
/// `chain`, on which network, and with which costs.
Finding with_times(Finding finding, int step, std::int64_t expected, const Chain& chain,
                   const ComputeCost& cost);

/// In the words of `off`, the first of these steps that takes the time of none of its `chains`, and
/// should take that of the first; if there is none, the times of the last step.
Finding wrong_times(
    const VirtualTime& time, const ComputeCost& cost, const std::vector<int>& steps,
    const std::function<std::vector<Chain>(int step)>& chains,
    const std::function<std::string(int step, std::int64_t took, const Chain& chain)>& off);

/// Those that a rank has ended.
std::vector<int> ended_steps(const TrainingOfRank& training);

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
/// of costly launches; if nothing, the times on the last one.
Finding on_each_network(const std::function<Finding(const NetworkModel& network)>& check);

/// That a step took another time than `expected`. `chain`: what it consists of; `longer`: what may make it
/// longer.
std::string off_the_chain(int step, std::int64_t took, std::int64_t expected,
                          const std::string& chain,
                          const std::string& longer =
                              "a launch that is late, a wait too many, or "
                              "another operation");

/// "; first off it: ...": the earliest operation or layer of any rank that deviates from the chain.
std::string first_off(const VirtualTime& time, int step, const Chain& chain,
                      const std::vector<int>& members);

}  // namespace ddp::testing
