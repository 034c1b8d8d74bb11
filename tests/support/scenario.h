#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "support/finding.h"

// Tests look at what ranks do from outside. A *scenario* is what every rank of a world does with a
// stage; it decides nothing. A *claim* is what must be true of all that the ranks of a scenario said and
// did, which is the scenario's evidence. Each scenario runs once, when the first claim asks for it.

namespace ddp::testing {

// What may be rare about a scenario.
constexpr const char* kStridedState = "parameters or buffers that are not contiguous";
constexpr const char* kStridedGradients = "gradients that are not contiguous";
constexpr const char* kStridedTensors = "tensors that are not contiguous";
constexpr const char* kUndefined = "gradients that are undefined";
constexpr const char* kDtype = "another dtype than float32";
constexpr const char* kTied = "a weight that is listed twice";
constexpr const char* kEmpty = "tensors without elements";
constexpr const char* kShared = "tensors that share memory";
constexpr const char* kThawed = "layers that are frozen or thawed in training";
constexpr const char* kSeveral = "several synchronizers";
constexpr const char* kGroups = "groups other than the whole world";
constexpr const char* kOneRank = "a single rank";
constexpr const char* kManyRanks = "more than two ranks";

/// Where two ranks are the ordinary case.
Rare rare_of(const World& world);

/// Within a scenario: what comes from here on is rare. What a rank has broken before, it has without it.
void tell_rare(Client& client, const std::string& rare);

/// All that the ranks of a run have told.
Rare told_rare(const Evidence& evidence);

struct Scenario {
  std::string name;  // "three layers, three steps"
  World world;
  std::function<void(Client&)> run;
  /// The graded test that fails if this scenario does not come to its end. Others do without it.
  std::string charged_to;
  /// What is about it beside the ordinary path, from its beginning on; see also tell_rare().
  Rare rare = {};
  /// The test that fails instead if backward does not come to its end; empty: charged_to.
  std::string charged_in_backward = {};
};

using Predicate = std::function<Finding(const Evidence&)>;

/// Fails the current test if `holds` is not true of all `scenarios`. The message names the first with the
/// least that is rare, so give the simplest first. Where something rare is about all that break it, the
/// grader may let another test pay: tools/grading/scoring/price.py. Nothing is judged in a scenario in which
/// `unless` finds something that makes `holds` meaningless, which another test reports; or, without a
/// finding, in a scenario that did not come to its end. If that leaves out the first scenario, and there is
/// nothing rare about that, the test is not judged.
void judge(const std::vector<Scenario>& scenarios, const Predicate& holds,
           const Predicate& unless = nullptr);

/// The same for a statement about several scenarios together.
void judge_together(const std::vector<Scenario>& scenarios,
                    const std::function<std::string(const std::vector<const Evidence*>&)>& holds);

/// Those of `scenarios` that are charged to a test.
std::vector<Scenario> charged_to(const std::vector<Scenario>& scenarios, const std::string& test);

/// Those of `scenarios` with these names after `form`, which must exist.
std::vector<Scenario> named(const std::vector<Scenario>& scenarios,
                            const std::vector<std::string>& names, const std::string& form = "");

/// All scenarios of several lists.
std::vector<Scenario> joined(const std::vector<std::vector<Scenario>>& lists);

/// `holds`, which says nothing if `first` is broken in `ordinary`, as another test reports: one mistake.
Predicate only_where(const Scenario& ordinary, const Predicate& first, const Predicate& holds);

/// The first that does not hold: what is wrong, or nothing.
Predicate all_of(std::vector<Predicate> predicates);

}  // namespace ddp::testing
