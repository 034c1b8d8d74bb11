#include "support/body.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "ddp/backends/cuda.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/run_refereed.h"
#include "support/debugger.h"
#include "support/grading.h"
#include "support/machine_share.h"
#include "support/price.h"
#include "support/prints.h"
#include "support/settings.h"
#include "support/signs_of_life.h"
#include "support/trace.h"
#include "support/warnings.h"

namespace ddp::testing {

namespace {

struct Known {
  std::string charged_to;  // of the body, which shows that there is but one of its name
  std::unique_ptr<Evidence> evidence;
};

// By the body's name.
std::map<std::string, Known>& all_evidence() {
  static std::map<std::string, Known> all;
  return all;
}

// The bodies that hung. What hangs where nothing is rare usually hangs everywhere.
std::vector<Body>& hung_bodies() {
  static std::vector<Body> bodies;
  return bodies;
}

// The one because of which a body is not run; null if it is.
const Body* hung_before(const Body& body) {
  constexpr std::size_t kPatience = 2;
  const std::vector<Body>& hung = hung_bodies();
  const auto found = std::ranges::find_if(hung, [&](const Body& other) {
    return hung.size() == kPatience || std::ranges::includes(body.rare, other.rare);
  });
  return found == hung.end() ? nullptr : &*found;
}

// Whether a body has shown that backward waits. Without the hold the others say the rest, and sooner.
bool& backward_waits() {
  static bool waits = false;
  return waits;
}

bool has_blocked(const Evidence& evidence) {
  return std::ranges::any_of(evidence.of, [](const auto& said) {
    return std::ranges::any_of(said,
                               [](const Seen& seen) { return seen.kind == EventKind::kBlocked; });
  });
}

void run_body(const Body& body, Client& client, RankContext& context) {
  if (settings().device.is_cuda()) {
    load_cuda();
    settings().device = device_of_rank(at::kCUDA, context);
  }
  load_stage_under_test();
  await_debugger(body.name, client.rank());
  const AccessWatch watch(client);
  {
    const EachWarningOnce warnings;
    body.run(client);
  }
  sing(client);
}

// Null if the body is not run, because another one hung.
const Evidence* evidence_of(const Body& body) {
  auto& [charged_to, evidence] =
      all_evidence().try_emplace(body.name, Known{body.charged_to, nullptr}).first->second;
  TORCH_CHECK(charged_to == body.charged_to, "two bodies are called \"", body.name, "\"");
  if (evidence == nullptr && hung_before(body) == nullptr) {
    ForkOptions options;
    options.deadline = settings().deadline;
    const MachineShare share(MachineShare::Mode::kBesideOthers);
    World world = body.world;
    world.hold = world.hold && !backward_waits();
    world.shaken_by = settings().shaken ? settings().seed + 1 : 0;
    evidence = std::make_unique<Evidence>(run_refereed(
        world, options,
        [&](Client& client, RankContext& context) { run_body(body, client, context); }));
    note_body_ended();
    backward_waits() = backward_waits() || has_blocked(*evidence);
    require_signs_of_life(*evidence, body.name);
    collect_spans(*evidence, body.name);
    pass_prints_on(body.name, evidence->reports);
    const RankReports& reports = evidence->reports;
    if (!reports.ok() && reports.ranks[reports.culprit].outcome == RankOutcome::kTimedOut) {
      hung_bodies().push_back(body);
    }
  }
  return evidence.get();
}

// What is wrong by a predicate. A body that did not come to its end may lack what it looks for.
std::string finding_of(const Predicate& holds, const Evidence& evidence) {
  try {
    return holds(evidence);
  } catch (const std::exception&) {
    if (evidence.reports.ok()) {
      throw;
    }
    return "";
  }
}

// Why a body did not come to its end; in full if no other test of this run says so.
std::string why_it_did_not_end(const Known& known) {
  return "did not come to its end: " + (will_run(known.charged_to)
                                            ? "see " + known.charged_to
                                            : known.evidence->reports.describe());
}

// Why nothing can be said of a body.
std::string why_not_judged(const Body& body, const Evidence* evidence) {
  if (evidence == nullptr) {
    const Body& hung = *hung_before(body);
    return in_body(hung) + " hung, and no body like it was run; it " +
           why_it_did_not_end(all_evidence().at(hung.name));
  }
  return evidence->reports.ok()
             ? ""
             : in_body(body) + " " + why_it_did_not_end(all_evidence().at(body.name));
}

// True if the code under test is a stub, which ends the test.
bool is_stub(const Evidence* evidence) {
  if (evidence == nullptr || evidence->reports.ok()) {
    return false;
  }
  const RankReport& culprit = evidence->reports.ranks[evidence->reports.culprit];
  if (culprit.not_implemented && !is_rehearsal()) {
    note_todo(culprit.reason);
  }
  return culprit.not_implemented;
}

// What a claim finds in a body. A test that a body is charged to reports it if it did not come to its
// end; if another finding makes its claim meaningless there, that is nobody's but an unusual body's.
std::string finding_in(const Body& body, const Evidence* evidence, const Predicate& holds,
                       const std::string& other, bool charged) {
  std::string finding = evidence != nullptr ? finding_of(holds, *evidence) : "";
  if (!finding.empty()) {
    return finding + printed_below(finding, evidence->reports);
  }
  const bool whole = evidence != nullptr && evidence->reports.ok();
  if (charged && evidence != nullptr && !whole) {
    return evidence->reports.describe();
  }
  if (charged && !body.rare.empty()) {
    return !other.empty() ? "not judged: " + other : whole ? "" : why_not_judged(body, evidence);
  }
  return "";
}

// Nothing if the code under test is a stub.
std::optional<Judgement> judgement_of(const std::vector<Body>& bodies, const Predicate& holds,
                                      const Predicate& unless, const std::string& test) {
  Judgement found;
  for (const Body& body : bodies) {
    const Evidence* evidence = evidence_of(body);
    if (is_stub(evidence)) {
      return std::nullopt;
    }
    const bool charged = body.charged_to == test;
    const std::string other = evidence != nullptr && unless ? finding_of(unless, *evidence) : "";
    std::string finding = finding_in(body, evidence, holds, other, charged);
    const bool whole = evidence != nullptr && evidence->reports.ok();
    const bool told = !finding.empty() && (other.empty() || (charged && !body.rare.empty()));
    if (!told && (!other.empty() || !whole)) {
      const bool needed = body.rare.empty() && (&body == &bodies.front() || charged);
      if (found.unjudged.empty() && needed) {
        found.unjudged = other.empty() ? why_not_judged(body, evidence) : other;
      }
      continue;
    }
    ++found.judged;
    if (!finding.empty()) {
      const auto place =
          std::ranges::upper_bound(found.broken, body.rare.size(), {},
                                   [](const Broken& broken) { return broken.body->rare.size(); });
      found.broken.insert(place, {&body, std::move(finding)});
      if (settings().brief && body.rare.empty()) {
        break;
      }
    }
  }
  if (found.judged == 0 && found.unjudged.empty() && !bodies.empty()) {
    found.unjudged = "there is no run in which this can be seen, see the tests that fail";
  }
  return found;
}

}  // namespace

std::string in_body(const Body& body) {
  return "\"" + body.name + "\" (" + std::to_string(body.world.ranks) +
         (body.world.ranks == 1 ? " rank)" : " ranks)");
}

std::set<std::string> tests_with_bodies() {
  std::set<std::string> tests;
  for (const auto& [name, known] : all_evidence()) {
    tests.insert(known.charged_to);
  }
  return tests;
}

void judge(const std::vector<Body>& bodies, const Predicate& holds, const Predicate& unless) {
  if (settings().device.is_cuda() && !why_no_gpu().empty()) {
    GTEST_SKIP() << why_no_gpu();
  }
  if (!is_rehearsal()) {
    std::ranges::for_each(bodies, note_body, &Body::name);
  }
  const auto found = judgement_of(bodies, holds, unless, test_in_question());
  if (found && is_rehearsal()) {
    rehearse(*found);
  } else if (found) {
    settle(*found);
  }
}

void judge_together(const std::vector<Body>& bodies,
                    const std::function<std::string(const std::vector<const Evidence*>&)>& holds) {
  if (settings().device.is_cuda() && !why_no_gpu().empty()) {
    GTEST_SKIP() << why_no_gpu();
  }
  if (is_rehearsal()) {
    return;
  }
  std::vector<const Evidence*> all;
  for (const Body& body : bodies) {
    note_body(body.name);
    all.push_back(evidence_of(body));
    if (is_stub(all.back())) {
      return;
    }
    if (all.back() == nullptr) {
      return note_not_judged(why_not_judged(body, all.back()));
    }
    if (!all.back()->reports.ok()) {
      ADD_FAILURE() << "in " << in_body(body) << ": " << all.back()->reports.describe();
      return;
    }
  }
  if (const std::string finding = holds(all); !finding.empty()) {
    ADD_FAILURE() << "in " << in_body(bodies.front()) << " and those like it: " << finding
                  << printed_below(finding, all.front()->reports);
  }
}

std::vector<Body> named(const std::vector<Body>& bodies, const std::vector<std::string>& names) {
  std::vector<Body> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(bodies, name, &Body::name);
    TORCH_CHECK(found != bodies.end(), "there is no body \"", name, "\"");
    chosen.push_back(*found);
  }
  return chosen;
}

std::vector<Body> with(const std::vector<Body>& bodies, const std::string& rare) {
  std::vector<Body> chosen;
  std::ranges::copy_if(bodies, std::back_inserter(chosen),
                       [&](const Body& body) { return body.rare.contains(rare); });
  return chosen;
}

std::vector<Body> joined(const std::vector<std::vector<Body>>& lists) {
  std::vector<Body> all;
  for (const std::vector<Body>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

Predicate all_of(std::vector<Predicate> predicates) {
  return [predicates = std::move(predicates)](const Evidence& evidence) {
    for (const Predicate& holds : predicates) {
      if (std::string finding = holds(evidence); !finding.empty()) {
        return finding;
      }
    }
    return std::string();
  };
}

}  // namespace ddp::testing
