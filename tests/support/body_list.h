#pragma once

#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "support/training_bodies.h"

// How training_bodies() and rank_dependent_bodies() are written.

namespace ddp::testing {

/// Collects the bodies of one stage.
class Bodies {
 public:
  explicit Bodies(const SynchronizerUnderTest& subject) : subject_(subject) {}

  /// A body with one model, which has been constructed. `rare`: what is, beside the model and the
  /// world.
  void add(const std::string& name, const World& world, const std::string& charged,
           const TrainingOptions& options, const std::function<void(Training&)>& run,
           const Rare& rare = {}) {
    Rare all = rare_of(options);
    all.insert(rare.begin(), rare.end());
    add(
        name, world, charged,
        [make = make(), options, run](Client& client) {
          Training training(client, options, make);
          training.construct();
          run(training);
        },
        all);
  }

  void add(const std::string& name, const World& world, const std::string& charged,
           const std::function<void(Client&)>& run, const Rare& rare = {}) {
    Rare all = rare_of(world);
    all.insert(rare.begin(), rare.end());
    all_.push_back({subject_.form + name, world, run, charged, all});
  }

  const ChargedTests& charged() const { return subject_.charged; }
  const Factory& make() const { return subject_.make; }
  bool mixed_dtypes() const { return subject_.mixed_dtypes; }
  std::vector<Body> take() { return std::move(all_); }

 private:
  const SynchronizerUnderTest& subject_;
  std::vector<Body> all_;
};

inline void steps(Training& training, int count, std::initializer_list<Clear> how) {
  for (int step = 0; step < count; ++step) {
    training.step(std::data(how)[step % how.size()]);
  }
}

inline const std::function<void(Training&)> kThreeSteps = [](Training& training) {
  steps(training, 3, {Clear::kNone, Clear::kZero});
};

/// Bodies drawn from the seed: the same gradients on all ranks, and others on each.
void add_drawn(Bodies& bodies);
void add_drawn_by_rank(Bodies& bodies);

/// Bodies with NoSync scopes.
void add_scopes(Bodies& bodies);

/// Bodies with several synchronizers, groups and threads.
void add_worlds(Bodies& bodies);

}  // namespace ddp::testing
