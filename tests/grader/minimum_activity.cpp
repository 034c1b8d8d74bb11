#include "grader/minimum_activity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddp/referee/client.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

constexpr int kNobodysTag = 1 << 20;

// By scenario, of each rank.
nlohmann::json& seen_activity() {
  static nlohmann::json activity = nlohmann::json::object();
  return activity;
}

const nlohmann::json& known_activity() {
  static const nlohmann::json known =
      settings().minimum_activity.empty()
          ? nlohmann::json::object()
          : nlohmann::json::parse(std::ifstream(settings().minimum_activity));
  return known;
}

// Of several values of one name the first: how many there are may be the stage's choice, as buckets are.
bool is_activity(const Seen& seen) {
  return seen.kind == EventKind::kPhase || seen.kind == EventKind::kThrew ||
         (seen.kind == EventKind::kValue && seen.index <= 0);
}

bool is_canary(const Seen& seen) { return seen.place.phase == Phase::kCanary; }

// Whether the rank's mistake was found; what it did goes.
bool take_canary(Evidence& evidence, int rank) {
  auto& said = evidence.of[rank];
  const auto first = std::ranges::find_if(said, is_canary);
  const bool found = std::any_of(first, said.end(), [](const Seen& seen) {
    return is_canary(seen) && seen.kind == EventKind::kTouch;
  });
  auto& launches = evidence.launches[rank];
  const auto index = static_cast<std::size_t>(first - said.begin());
  while (!launches.empty() && launches.back() >= index) {
    launches.pop_back();
  }
  std::erase_if(said, is_canary);
  return found;
}

std::int64_t due_activity(const std::string& scenario, int rank, const World& world) {
  const auto known = known_activity().find(scenario);
  // Where communication fails, a scenario ends early, and not all solutions at the same place.
  return known == known_activity().end() || world.failure ? 1 : known->at(rank).get<std::int64_t>();
}

std::string what_is_missing(std::int64_t due, std::int64_t activity, bool canary) {
  if (activity < due) {
    return "without doing what it had to do: of " + std::to_string(due) +
           " steps, values and calls that it should have told of, there were " +
           std::to_string(activity);
  }
  return canary
             ? ""
             : "but a buffer in flight that was touched on purpose, at the end, was not noticed: "
               "something has switched off what looks at tensors";
}

}  // namespace

void touch_on_purpose(Client& client) {
  client.go_to({.phase = Phase::kCanary});
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  std::vector<at::Tensor> message = {at::zeros({1})};
  const int ranks = client.world().ranks;
  const auto never_awaited = ranks == 1
                                 ? group->allreduce(message)
                                 : group->recv(message, (client.rank() + 1) % ranks, kNobodysTag);
  message[0].add_(1);
}

void require_activity(Evidence& evidence, const std::string& scenario) {
  RankReports& reports = evidence.reports;
  const bool whole = reports.ok();
  auto counts = nlohmann::json::array();
  for (int rank = 0; rank < evidence.world.ranks; ++rank) {
    const bool canary = take_canary(evidence, rank);
    counts.push_back(std::ranges::count_if(evidence.of[rank], is_activity));
    std::string missing =
        what_is_missing(due_activity(scenario, rank, evidence.world), counts.back(), canary);
    if (whole && !missing.empty()) {
      reports.ranks[rank].reason = std::move(missing);
      reports.culprit = reports.ok() ? rank : reports.culprit;
    }
  }
  if (reports.ok()) {
    seen_activity()[scenario] = std::move(counts);
  }
}

const nlohmann::json& minimum_activity() { return seen_activity(); }

}  // namespace ddp::testing
