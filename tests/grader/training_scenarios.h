#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "grader/scenario.h"
#include "grader/training.h"

namespace ddp::testing {

/// The stage's tests that are charged if a scenario does not come to its end.
struct ChargedTests {
  std::string mean, missing, accumulation, lifetime, growth, errors;
  /// Where gradients are undefined on all ranks; empty: as `mean`.
  std::string undefined = "";
};

/// A synchronizer of stages 01-03 under test, of which a stage may have several forms.
struct SynchronizerUnderTest {
  Factory make;
  ChargedTests charged;
  std::string form = "";     // begins the scenarios' names
  bool mixed_dtypes = true;  // whether a model may have several
};

/// Caps of buckets for the models here: a parameter in each; some; all of a dtype.
constexpr std::int64_t kEach = 1;
constexpr std::int64_t kSome = 300;
constexpr std::int64_t kOne = std::int64_t{25} << 20;

/// Scenarios in which all ranks compute the same gradients in the same order, the simplest first.
std::vector<Scenario> training_scenarios(const SynchronizerUnderTest& subject);

/// Scenarios in which they do not: layers that only some ranks use, ranks without a backward.
std::vector<Scenario> rank_dependent_scenarios(const SynchronizerUnderTest& subject);

using RunWith = void (*)(Client& client, const Factory& make);

/// A scenario that calls `run` with the stage's factory.
Scenario scenario_of(const SynchronizerUnderTest& subject, const std::string& name, int ranks,
                     RunWith run, const std::string& charged_to);

/// Wrong arguments and sparse gradients, on all ranks and on one alone; for stages 01-03.
std::vector<Scenario> misuse_scenarios(const SynchronizerUnderTest& subject);

/// A sparse gradient that was accumulated inside NoSync, and is none when it would be sent.
Scenario sparse_made_dense(const SynchronizerUnderTest& subject);

/// For stages in which it is the hook that refuses, and so backward.
Scenario refused_in_backward(const SynchronizerUnderTest& subject);

/// A second backward outside NoSync before finish(), which must throw, on every rank.
std::vector<Scenario> second_backward_scenarios(const SynchronizerUnderTest& subject);

/// Training after an error: of a hook that is not the synchronizer's, and of another synchronizer.
std::vector<Scenario> recovery_scenarios(const SynchronizerUnderTest& subject);

/// The same on one rank alone, for synchronizers of which each finish() reduces everything.
Scenario failure_on_one_rank(const SynchronizerUnderTest& subject);

/// A synchronizer is destroyed, and its parameters live on.
std::vector<Scenario> destruction_scenarios(const SynchronizerUnderTest& subject);

// How training_scenarios() and rank_dependent_scenarios() are written.

/// Collects the scenarios of one stage.
class Scenarios {
 public:
  explicit Scenarios(const SynchronizerUnderTest& subject) : subject_(subject) {}

  /// A scenario with one model, which has been constructed. `edge_cases`: beside those of the model and
  /// the
  /// world.
  void add(const std::string& name, const World& world, const std::string& charged,
           const TrainingOptions& options, const std::function<void(Training&)>& run,
           const EdgeCases& edge_cases = {}) {
    EdgeCases all = edge_cases_of(options);
    all.insert(edge_cases.begin(), edge_cases.end());
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
           const std::function<void(Client&)>& run, const EdgeCases& edge_cases = {}) {
    EdgeCases all = edge_cases_of(world);
    all.insert(edge_cases.begin(), edge_cases.end());
    all_.push_back({subject_.form + name, world, run, charged, all});
  }

  const ChargedTests& charged() const { return subject_.charged; }
  const Factory& make() const { return subject_.make; }
  bool mixed_dtypes() const { return subject_.mixed_dtypes; }
  std::vector<Scenario> take() { return std::move(all_); }

 private:
  const SynchronizerUnderTest& subject_;
  std::vector<Scenario> all_;
};

/// So many whole steps, before which gradients are cleared in these ways by turns.
inline std::function<void(Training&)> steps(int count, const std::vector<Clear>& how) {
  return [count, how](Training& training) {
    for (int step = 0; step < count; ++step) {
      training.step(how[step % how.size()]);
    }
  };
}

inline const auto kThreeSteps = steps(3, {Clear::kNone, Clear::kZero});

/// A scenario drawn from the seed.
void add_drawn(Scenarios& scenarios);

}  // namespace ddp::testing
