#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "grader/grading.h"
#include "grader/settings.h"
#include "grader/training.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"

// Claims on what is launched, and what happens until it is complete.

namespace ddp::testing {

namespace {

Finding wrong_launches(const TrainingOfRank& training, int number, std::size_t ranks) {
  const TrainingStep& step = training.steps.at(number);
  std::vector<Payload> all_reduces;
  for (const Seen* launch : step.launches()) {
    if (launch->place.no_sync || launch->place.phase == Phase::kDestruction ||
        launch->type == c10d::OpType::BARRIER) {
      continue;  // other claims' business
    }
    if (!is_all_reduce(*launch)) {
      return Finding(in(training, number) + ": " + describe_operation(*launch) +
                     " is neither needed nor allowed: a step makes all-reduces only")
          .at(launch, "extra operation");
    }
    all_reduces.push_back({launch->elements, launch->dtype});
  }
  if (ranks == 1 && all_reduces.empty()) {
    return "";
  }
  const Events ready = ready_in(step);
  std::set<std::int64_t> due;
  for (const Seen* each : ready) {
    due.insert(each->index);
  }
  const auto count = all_reduces.size();
  std::string missing;
  Events without;  // the gradients that are missing
  std::vector<Payload> optional;
  const std::set<std::int64_t> layers = trainable(training);
  for (const auto& [index, parameter] : training[kParameter]) {
    if (!layers.contains(index)) {
      continue;
    }
    const Payload payload{parameter.numel(), parameter.scalar_type()};
    if (!due.contains(index) || payload.elements == 0) {
      optional.push_back(payload);
    } else if (!take(all_reduces, payload)) {
      missing += (missing.empty() ? "" : ", ") + layer(index);
      without.push_back(*std::ranges::find(ready.rbegin(), ready.rend(), index, &Seen::index));
    }
  }
  std::erase_if(all_reduces, [&](const Payload& payload) { return take(optional, payload); });
  if (missing.empty() && all_reduces.empty()) {
    return "";
  }
  Events extra;  // of equal ones the last
  for (const Seen* launch : step.launches() | std::views::reverse) {
    if (is_all_reduce(*launch) && take(all_reduces, {launch->elements, launch->dtype})) {
      extra.insert(extra.begin(), launch);
    }
  }
  const auto numbered = [](const Seen* each) { return "#" + std::to_string(each->operation); };
  Finding found = in(training, number) + ": " + std::to_string(count) +
                  (count == 1 ? " all-reduce, " : " all-reduces, ") + std::to_string(due.size()) +
                  " due: one for each gradient, of exactly its elements. " +
                  (missing.empty() ? "" : "Missing: " + missing + ". ") +
                  (extra.empty() ? "" : "Extra: " + enumerated(extra, numbered) + ". ") +
                  "Launched:" + list_of(step.launches());
  for (const Seen* launch : extra) {
    found = std::move(found).at(launch, "extra operation");
  }
  for (const Seen* ready : without) {
    found = std::move(found).at(ready, "missing operation");
  }
  return found;
}

// What a model has launched and not waited for when construction or finish() has returned.
Finding unfinished_operations(const Evidence& evidence) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    std::map<int, std::map<std::int64_t, const Seen*>> pending;  // by model
    for (const Seen& seen : evidence.of[rank]) {
      auto& own = pending[seen.place.model];
      if (seen.kind == EventKind::kLaunch) {
        own[seen.operation] = &seen;
      } else if (seen.kind == EventKind::kDone) {
        for (auto& [model, operations] : pending) {
          operations.erase(seen.operation);
        }
      } else if (seen.kind == EventKind::kValue && !own.empty() &&
                 (seen.text == "gradient" || seen.text == "parameter")) {
        return Finding(where(seen, static_cast<int>(rank)) + ": nobody has waited for " +
                       describe_operation(*own.begin()->second) + " when " +
                       (seen.text == "gradient" ? "finish()" : "construction") + " returns")
            .at(own.begin()->second, "never waited for");
      }
    }
  }
  return "";
}

}  // namespace

Finding launched_inside_no_sync(const Evidence& evidence) {
  return first_event(evidence, EventKind::kLaunch, [](const Seen& launch, int rank) {
    return launch.place.no_sync ? where(launch, rank) + ": " + describe_operation(launch) +
                                      " was launched inside a NoSync scope"
                                : "";
  });
}

bool reduced_inside_no_sync(const Evidence& evidence) {
  return std::ranges::any_of(evidence.of, [](const SeenList& said) {
    return std::ranges::any_of(said, [](const Seen& seen) {
      return seen.place.no_sync && (is_all_reduce(seen) || is_reduce_scatter(seen));
    });
  });
}

Finding no_sync_is_silent(const Evidence& evidence) {
  auto launched = launched_inside_no_sync(evidence);
  if (!launched.empty()) {
    return launched;
  }
  auto waited = first_event(evidence, EventKind::kWait, [&](const Seen& wait, int rank) {
    return wait.place.no_sync && wait.place.phase == Phase::kFinish && wait.home
               ? where(wait, rank) + ": finish() inside a NoSync scope waited for " +
                     describe_operation(evidence.launch_of(rank, wait.operation)) +
                     "; it must do nothing there"
               : "";
  });
  if (!waited.empty() || !unfinished_operations(evidence).empty()) {
    return waited;  // what comes late, for want of a wait, is not NoSync's
  }
  return first_event(evidence, EventKind::kFact, [](const Seen& fact, int rank) {
    const auto when = rest_of(fact.text, kTouchedGradient);
    return when && fact.place.no_sync
               ? where(fact, rank) + ": " + *when + " changed the gradient of " +
                     layer(fact.index) + "; it must do nothing there"
               : "";
  });
}

Finding one_all_reduce_for_each_gradient(const Evidence& evidence) {
  if (!launched_inside_no_sync(evidence).empty()) {
    return "";  // no_sync_is_silent() says so
  }
  return first_in_steps(evidence, [](const auto& ranks, int step) {
    return first_in(ranks, [&](const TrainingOfRank& training) {
      return wrong_launches(training, step, ranks.size());
    });
  });
}

Finding every_step_reduces(const Evidence& evidence) {
  return first_on_ranks(
      evidence, [](const TrainingOfRank&, const TrainingStep& step, std::size_t ranks) {
        const bool nothing = std::ranges::none_of(step.launches(), [](const Seen* launch) {
          return launch->place.phase == Phase::kBackward || launch->place.phase == Phase::kFinish;
        });
        return has_ended(step) && ranks > 1 && !ready_in(step).empty() && nothing
                   ? "nothing was communicated, although backward computed gradients"
                   : "";
      });
}

Finding misused_in_flight(const Evidence& evidence) {
  if (buffers_in_flight_are_left_alone(evidence).empty()) {
    return "";
  }
  std::string text = "a buffer was used in flight or never waited for";
  for (const DeclaredTest& test : declared_tests()) {
    if (std::string_view(test.claim.name).ends_with("_in_flight")) {
      text += c10::str(": see \"", test.claim.title, "\"");
    }
  }
  return text;
}

Finding nothing_in_flight_is_touched(const Evidence& evidence) {
  return first_event(evidence, EventKind::kTouch, [&](const Seen& touch, int rank) {
    return where(touch, rank) + ": " + touch.text + " was in flight when " +
           (settings().withhold ? "it was used" : touch.detail) + ", between the launch of " +
           describe_operation(evidence.launch_of(rank, touch.operation)) + " and the wait for it";
  });
}

Finding buffers_in_flight_are_left_alone(const Evidence& evidence) {
  const Finding touched = nothing_in_flight_is_touched(evidence);
  return touched.empty() ? unfinished_operations(evidence) : touched;
}

Finding backward_never_waits(const Evidence& evidence) {
  return first_event(evidence, EventKind::kBlocked, [&](const Seen& blocked, int rank) {
    return where(blocked, rank) + ": " +
           describe_operation(evidence.launch_of(rank, blocked.operation)) + " " + blocked.text +
           ": backward stood still until the network was done. Launch in backward; wait in "
           "finish()";
  });
}

Finding backward_launches(const Evidence& evidence) {
  if (!launched_inside_no_sync(evidence).empty()) {
    return "";
  }
  const auto outside = [](const Seen* seen) {
    return seen->place.phase == Phase::kBackward && !seen->place.no_sync;
  };
  return first_training(evidence, [&](const TrainingOfRank& training, const auto& ranks) {
    bool ready = false;
    for (const auto& [number, step] : training.steps) {
      ready = ready || std::ranges::any_of(ready_in(step), outside);
    }
    const bool launched = std::ranges::any_of(training.launches(), outside);
    return ranks.size() > 1 && ready && !launched
               ? on(training.rank) + ": backward launched nothing, so nothing overlaps"
               : "";
  });
}

}  // namespace ddp::testing
