#include "grader/runs.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
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

// How many scenarios with an order to choose also run in a drawn one, and how many with messages alone,
// which leave little to choose.
constexpr int kScenariosWithADraw = 3;
constexpr int kScenariosOfMessages = 3;
constexpr std::int64_t kDraws = 9'998;  // of four digits, after those that are not drawn
constexpr std::size_t kChoicesShown = 3;
constexpr std::size_t kPatience = 3;  // after so many scenarios that hung no other one is run

struct Known {
  std::string charged_to;  // which shows that there is but one scenario of its name
  std::deque<Run> runs;
  std::deque<Run> shortened;
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

// Whether a scenario has shown that backward waits. The others then run without the hold: what else
// they break fails sooner.
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

// A name of a tensor reaches a failure's text, and the rank may have put into it what it has read.
void withhold_names(Evidence& evidence) {
  static const std::regex plain(
      "(the gradients? of )?((layer|buffer|unit|parameter) \\d{1,3}|\\w{1,6}\\.(weight|bias))"
      "( and \\d{1,3} others?)?|a tensor \\w+ \\[[\\d, ]*\\]");
  for (SeenList& said : evidence.of) {
    for (Seen& seen : said) {
      if (seen.kind == EventKind::kLaunch && !std::regex_match(seen.text, plain)) {
        seen.text = "a tensor";
      }
    }
  }
}

void run(const Scenario& scenario, const Schedule& schedule, std::deque<Run>& runs) {
  World world = scenario.world;
  world.hold = world.hold && !backward_waits();
  world.schedule = schedule;
  world.touch_on_purpose = true;
  runs.push_back({schedule,
                  run_refereed(world, options_of_ranks(),
                               [&](Client& client, RankContext& context) {
                                 run_scenario(scenario, client, context);
                               }),
                  scenario.edge_cases});
  Evidence& evidence = runs.back().evidence;
  keep_known_edge_cases(evidence, scenario.name);
  if (settings().withhold) {
    withhold_names(evidence);
  }
  runs.back().edge_cases.merge(told_edge_cases(evidence));
  note_scenario_ended();
  backward_waits() = backward_waits() || any_event(evidence, [](const Seen& seen) {
                       return seen.kind == EventKind::kBlocked;
                     });
  require_activity(evidence, scenario.name);
  pass_prints_on(scenario.name, evidence.reports);
  if (runs.size() == 1) {  // in the usual order
  }
  const RankReports& reports = evidence.reports;
  if (!reports.ok() && reports.ranks[reports.culprit].outcome == RankOutcome::kTimedOut) {
    hung_scenarios().push_back(scenario);
    hung_scenarios().back().edge_cases = runs.back().edge_cases;
  }
}

void trace(const Scenario& scenario, const Run& run) {
  collect_spans(run.evidence, scenario.name + with_schedule(run));
}

// Who launches and waits on one thread sees the same in every order.
bool has_a_choice(const Evidence& evidence) {
  return any_event(evidence, [](const Seen& seen) {
    const bool took_future =
        seen.kind == EventKind::kFact && std::string_view(seen.text) == kTookFuture;
    const bool operation = seen.kind == EventKind::kLaunch || seen.kind == EventKind::kWait;
    return took_future || seen.kind == EventKind::kPoll || (operation && !seen.home);
  });
}

bool sends(const Evidence& evidence) {
  return any_event(evidence, [](const Seen& seen) {
    return seen.kind == EventKind::kLaunch && seen.type == c10d::OpType::SEND;
  });
}

bool takes_one_of(int& left) {
  const bool some = left > 0;
  left -= some ? 1 : 0;
  return some;
}

std::vector<Schedule> other_orders(const Evidence& usual) {
  static int draws_left = kScenariosWithADraw;
  static int messages_left = kScenariosOfMessages;
  const Schedule all_other(1);
  if (has_a_choice(usual)) {
    if (!settings().many_orders && !takes_one_of(draws_left)) {
      return {all_other};
    }
    const auto draw = static_cast<std::int64_t>((settings().seed + draws_left) % kDraws);
    return {all_other, Schedule(2 + draw)};
  }
  return sends(usual) && takes_one_of(messages_left) ? std::vector{all_other}
                                                     : std::vector<Schedule>{};
}

// Between a place that is right and one that is wrong, halves what is left until they are neighbours.
void bisect(std::int64_t right, std::int64_t wrong,
            const std::function<bool(std::int64_t)>& is_wrong) {
  while (std::abs(wrong - right) > 1) {
    const std::int64_t middle = (right + wrong) / 2;
    (is_wrong(middle) ? wrong : right) = middle;
  }
}

std::int64_t launches_in(const Evidence& evidence) {
  std::size_t most = 0;
  for (const auto& launches : evidence.launches) {
    most = std::max(most, launches.size());
  }
  return static_cast<std::int64_t>(most);
}

}  // namespace

const Scenario* hung_before(const Scenario& scenario) {
  const std::vector<Scenario>& hung = hung_scenarios();
  const auto found = std::ranges::find_if(hung, [&](const Scenario& other) {
    return hung.size() >= kPatience || std::ranges::includes(scenario.edge_cases, other.edge_cases);
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
  const Run& ended = run != known.runs.end() ? *run : known.shortened.back();
  const std::string full = ended.evidence.reports.describe();
  const std::string& payer = payer_of(scenario, ended);
  return "did not come to its end: " +
         (will_run(payer) ? "see " + payer + " (" + full.substr(0, full.find('\n')) + ")" : full);
}

const std::deque<Run>& runs_of(const Scenario& scenario) {
  Known& known =
      all_known().try_emplace(scenario.name, Known{scenario.charged_to, {}, {}}).first->second;
  TORCH_CHECK(known.charged_to == scenario.charged_to, "two scenarios are called \"", scenario.name,
              "\"");
  if (known.runs.empty() && hung_before(scenario) == nullptr) {
    run(scenario, settings().schedule.value_or(Schedule()), known.runs);
    trace(scenario, known.runs.front());
    if (!settings().schedule && known.runs.front().whole()) {
      for (const Schedule& schedule : other_orders(known.runs.front().evidence)) {
        if (known.runs.back().whole()) {
          run(scenario, schedule, known.runs);
        }
      }
    }
  }
  return known.runs;
}

const Run& shortest(const Scenario& scenario, const Run& first_found,
                    const std::function<bool(const Evidence&)>& is_wrong) {
  std::deque<Run>& tried = all_known().at(scenario.name).shortened;
  const Run* found = &first_found;
  const auto try_between = [&](std::int64_t first, std::int64_t last) {
    const Schedule schedule(found->schedule.draw(), first, last);
    const auto known = std::ranges::find(tried, schedule.number(),
                                         [](const Run& run) { return run.schedule.number(); });
    if (known == tried.end()) {
      run(scenario, schedule, tried);
    }
    const Run& now = known == tried.end() ? tried.back() : *known;
    const bool wrong = now.whole() && is_wrong(now.evidence);
    found = wrong ? &now : found;
    return wrong;
  };
  bisect(0, launches_in(found->evidence),
         [&](std::int64_t last) { return try_between(found->schedule.first(), last); });
  bisect(std::min(found->schedule.last(), launches_in(found->evidence)), found->schedule.first(),
         [&](std::int64_t first) { return try_between(first, found->schedule.last()); });
  trace(scenario, *found);
  return *found;
}

std::string with_schedule(const Run& run) {
  return run.schedule.usual() ? "" : " with SCHEDULE=" + std::to_string(run.schedule.number());
}

std::string describe_order(const Run& run) {
  std::string text;
  std::size_t choices = 0;
  for (std::size_t rank = 0; rank < run.evidence.of.size(); ++rank) {
    for (const Seen& seen : run.evidence.of[rank]) {
      const auto& launches = run.evidence.launches[rank];
      const bool chosen = seen.kind == EventKind::kChoice &&
                          seen.operation < static_cast<std::int64_t>(launches.size());
      if (chosen && ++choices <= kChoicesShown) {
        const Seen& launch = run.evidence.launch_of(static_cast<int>(rank), seen.operation);
        text += "\n  rank " + std::to_string(rank) + ", " + describe_operation(launch) + ": " +
                seen.text;
      }
    }
  }
  if (choices > kChoicesShown) {
    text += "\n  and " + std::to_string(choices - kChoicesShown) + " more";
  }
  return text.empty() ? ""
                      : "\nIt shows where the network chooses another order that it may:" + text;
}

}  // namespace ddp::testing
