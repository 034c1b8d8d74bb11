#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "grader/finding.h"

// Tests look at what ranks do from outside. A *scenario* is what every rank of a world does with a
// stage; it decides nothing. A *claim* is what must be true of all that the ranks of a scenario said and
// did, which is the scenario's evidence. Each scenario runs once, when the first claim asks for it.
//
// Which scenario? First an entry of the stage's scenarios.cpp that shows the mistake already; a new one
// costs time in every run. It does one thing beyond the ordinary path, and names that in `edge_cases`:
// what breaks only there is one mistake, and costs the points of one test, `charged_to`. That is the
// test about what the scenario adds, and the one that fails if the scenario hangs or dies; with
// `charged_in_backward` another one if that happens inside backward. Two models at once are two
// Trainings, which TrainingOptions::model tells apart, with kSeveral among the edge cases.
//
// Which claim? One sentence about the evidence that a right solution keeps in every scenario given to
// judge(), and that names rank, step and tensor where it is broken. Two ways keep it from failing for
// another test's reason: `unless`, where something else makes it meaningless in that scenario (values,
// where a tensor was used in flight); only_where(), where it means something only if another claim
// holds in the ordinary scenario. What `unless` finds must be another test's claim in the same scenarios,
// or a student could break it on purpose; a test of which it leaves less than half is not judged. A test
// that a solution which only broadcasts, or does nothing, passes gives points for nothing: it must require
// that something happened.

namespace ddp::testing {

// Edge cases: what a scenario has beside the ordinary path.
constexpr const char* kStridedState = "parameters or buffers that are not contiguous";
constexpr const char* kStridedGradients = "gradients that are not contiguous";
constexpr const char* kStridedTensors = "tensors that are not contiguous";
constexpr const char* kUndefined = "gradients that are undefined";
constexpr const char* kDtype = "another dtype than float32";
constexpr const char* kTied = "a weight that is listed more than once";
constexpr const char* kEmpty = "tensors without elements";
constexpr const char* kShared = "tensors that share memory";
constexpr const char* kThawed = "layers that are frozen or thawed in training";
constexpr const char* kSeveral = "several synchronizers";
constexpr const char* kGroups = "groups other than the whole world";
constexpr const char* kOneRank = "a single rank";
constexpr const char* kManyRanks = "more than two ranks";

/// The world's edge cases; two ranks are ordinary.
EdgeCases edge_cases_of(const World& world);

/// Within a scenario: what comes from here on is an edge case. What a rank broke before
/// counts as broken without it.
void tell_edge_case(Client& client, const std::string& edge_case);

/// The fact that tells it begins so.
constexpr const char* kToldEdgeCase = "edge case: ";

/// Those that the ranks of a run have told.
EdgeCases told_edge_cases(const Evidence& evidence);

struct Scenario {
  std::string name;  // "three layers, three steps"
  World world;
  std::function<void(Client&)> run;
  /// The graded test that fails if this scenario does not come to its end. Others skip it, so
  /// it must be among those that judge it: tests/lab/test_stages.py.
  std::string charged_to;
  /// Its edge cases, from its beginning on; see also tell_edge_case().
  EdgeCases edge_cases = {};
  /// The test that fails instead if backward does not come to its end; empty: charged_to.
  std::string charged_in_backward = {};
  /// What its ranks load instead of the stage, from the build's lib/: "libddp_baselines.so"; empty:
  /// the stage. So a baseline never lies in a process with the code that it is compared with.
  std::string instead_of_stage = {};
};

/// What is wrong in the evidence; empty: the claim holds.
using Predicate = std::function<Finding(const Evidence&)>;

/// Fails the current test if there is a `violation` in any of `scenarios`. The message names the
/// first with the fewest edge cases, so give the simplest first. Where all with one have edge
/// cases, the grader may deduct from another test: tools/grading/scoring/deductions.py.
///
/// Nothing is judged in a scenario in which `unless` finds something that makes `violation`
/// meaningless, which another test reports; or, without a finding, in a scenario that did not come
/// to its end. If that leaves out the first scenario, and it has no edge case, the test is not
/// judged.
void judge(const std::vector<Scenario>& scenarios, const Predicate& violation,
           const Predicate& unless = nullptr);

/// The same for a statement about several scenarios together.
void judge_together(
    const std::vector<Scenario>& scenarios,
    const std::function<std::string(const std::vector<const Evidence*>&)>& violation);

/// Those of `scenarios` that are charged to a test.
std::vector<Scenario> charged_to(const std::vector<Scenario>& scenarios, const std::string& test);

/// Those of `scenarios` with these names after `form`, which must exist.
std::vector<Scenario> named(const std::vector<Scenario>& scenarios,
                            const std::vector<std::string>& names, const std::string& form = "");

/// All scenarios of several lists.
std::vector<Scenario> joined(const std::vector<std::vector<Scenario>>& lists);

/// `violation`, unless `first` finds something in `ordinary`, which another test reports.
Predicate only_where(const Scenario& ordinary, const Predicate& first, const Predicate& violation);

/// The first violation, or nothing.
Predicate all_of(std::vector<Predicate> predicates);

}  // namespace ddp::testing
