#include "grader/runs.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string_view>

#include "ddp/backends/cuda.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/evidence.h"
#include "grader/grading.h"
#include "grader/minimum_activity.h"
#include "grader/run_output.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

constexpr std::size_t kMostHangs = 3;  // after so many scenarios that hung no other one is run

struct Known {
  std::string charged_to;  // which shows that there is but one scenario of its name
  std::deque<Run> runs;
};

// By the scenario's name.
std::map<std::string, Known>& all_known() {
  static std::map<std::string, Known> all;
  return all;
}

std::vector<Scenario>& hung_scenarios() {
  static std::vector<Scenario> scenarios;
  return scenarios;
}

bool ended_in_backward(const Evidence& evidence) {
  if (evidence.reports.ok()) {
    return false;
  }
  const auto& said = evidence.of[evidence.reports.culprit];
  return !said.empty() && said.back().place.phase == Phase::kBackward;
}

// Whether a scenario without an edge case has shown that backward waits. The others then run without the
// hold: what else they break fails sooner.
bool& backward_waits() {
  static bool waits = false;
  return waits;
}

bool any_event(const Evidence& evidence, const std::function<bool(const Seen&)>& is_it) {
  return std::ranges::any_of(evidence.of,
                             [&](const auto& said) { return std::ranges::any_of(said, is_it); });
}

// In a rank that has loaded the stage: if gdb is to come to it, writes its process id to <folder>/rank,
// and returns when gdb has attached and something can be read from <folder>/go.
void await_debugger(const std::string& scenario, int rank) {
  const auto& debug = settings().debug;
  if (!debug.folder.empty() && debug.scenario == scenario && debug.rank == rank) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // gdb is no ancestor of this process
    std::ofstream(debug.folder + "/rank") << getpid() << std::endl;
    std::ifstream(debug.folder + "/go").get();
  }
}

void run_scenario(const Scenario& scenario, Client& client, RankContext& context) {
  if (settings().device.is_cuda()) {
    load_cuda();
    settings().device = device_of_rank(at::kCUDA, context);
  }
  { const MemoryMeter first; }  // what the allocator was before the stage
  if (scenario.instead_of_stage.empty()) {
    load_stage_under_test();
  } else {
    load_lab_library(scenario.instead_of_stage);
  }
  await_debugger(scenario.name, client.rank());
  const AccessWatch watch(client);
  {
    const EachWarningOnce warnings;
    scenario.run(client);
  }
  client.go_to({.phase = Phase::kCanary});
}

void run(const Scenario& scenario, bool late_callbacks, std::deque<Run>& runs) {
  World world = scenario.world;
  world.hold = world.hold && !backward_waits();
  world.late_callbacks = late_callbacks;
  world.touch_on_purpose = true;
  runs.push_back({run_refereed(world, options_of_ranks(),
                               [&](Client& client, RankContext& context) {
                                 run_scenario(scenario, client, context);
                               }),
                  scenario.edge_cases});
  Evidence& evidence = runs.back().evidence;
  keep_known_edge_cases(evidence, scenario.name);
  runs.back().edge_cases.merge(told_edge_cases(evidence));
  note_scenario_ended();
  backward_waits() = backward_waits() ||
                     (runs.back().edge_cases.empty() && any_event(evidence, [](const Seen& seen) {
                        return seen.kind == EventKind::kBlocked;
                      }));
  require_activity(evidence, scenario.name);
  pass_prints_on(scenario.name, evidence.reports);
  const RankReports& reports = evidence.reports;
  if (!reports.ok() && reports.ranks[reports.culprit].outcome == RankOutcome::kTimedOut) {
    hung_scenarios().push_back(scenario);
    hung_scenarios().back().edge_cases = runs.back().edge_cases;
  }
}

void trace(const Scenario& scenario, const Run& run) {
  collect_spans(run.evidence, scenario.name + (run.late_callbacks() ? ", late callbacks" : ""));
}

// Else there are no callbacks.
bool took_a_future(const Evidence& evidence) {
  return any_event(evidence, [](const Seen& seen) {
    return seen.kind == EventKind::kFact && std::string_view(seen.text) == kTookFuture;
  });
}

}  // namespace

const Scenario* hung_before(const Scenario& scenario) {
  const std::vector<Scenario>& hung = hung_scenarios();
  const auto found = std::ranges::find_if(hung, [&](const Scenario& other) {
    return hung.size() >= kMostHangs ||
           std::ranges::includes(scenario.edge_cases, other.edge_cases);
  });
  return found == hung.end() ? nullptr : &*found;
}

const std::string& payer_of(const Scenario& scenario, const Run& run) {
  const bool by_backward = !scenario.charged_in_backward.empty() && ended_in_backward(run.evidence);
  return by_backward ? scenario.charged_in_backward : scenario.charged_to;
}

std::string why_it_did_not_end(const Scenario& scenario) {
  const Known& known = all_known().at(scenario.name);
  const auto run = std::ranges::find(known.runs, false, &Run::whole);
  const std::string full = run->evidence.reports.describe();
  const std::string& payer = payer_of(scenario, *run);
  return "did not come to its end: " +
         (will_run(payer) ? "see " + payer + " (" + full.substr(0, full.find('\n')) + ")" : full);
}

const std::deque<Run>& runs_of(const Scenario& scenario) {
  Known& known =
      all_known().try_emplace(scenario.name, Known{scenario.charged_to, {}}).first->second;
  TORCH_CHECK(known.charged_to == scenario.charged_to, "two scenarios are called \"", scenario.name,
              "\"");
  if (known.runs.empty() && hung_before(scenario) == nullptr) {
    run(scenario, /*late_callbacks=*/false, known.runs);
    trace(scenario, known.runs.front());
    if (known.runs.front().whole() && took_a_future(known.runs.front().evidence)) {
      run(scenario, /*late_callbacks=*/true, known.runs);
      trace(scenario, known.runs.back());
    }
  }
  return known.runs;
}

}  // namespace ddp::testing
