#include <algorithm>
#include <iterator>
#include <utility>

#include "claims.h"

namespace ddp::testing {

namespace {

bool has_ended(const Said& call) { return call.has(kResult) || call.has(kText); }

std::vector<CallOfGroup> sort(const Evidence& evidence) {
  std::vector<CallOfGroup> whole;
  const auto step_of = [](const Seen& seen) { return seen.place.step; };
  for (auto& [step, ranks] : parts_of(evidence, step_of, has_ended)) {
    CallOfGroup call{step, {}};
    for (RankSaid& said : ranks) {
      call.ranks.emplace_back(std::move(said), call.size());
    }
    if (call.ranks.size() == members_of(evidence.world, call.ranks[0].group).size()) {
      whole.push_back(std::move(call));
    }
  }
  return whole;
}

}  // namespace

CallOfRank::CallOfRank(RankSaid said, int position)
    : RankSaid(std::move(said)),
      position(position),
      group(static_cast<GroupIndex>(number(kGroup).value_or(0))),
      values(static_cast<Values>(number(kValues).value_or(0))),
      strided(number(kIsStrided).value_or(0) != 0) {
  for (const Seen* fact : of(EventKind::kFact)) {
    if (const auto call = rest_of(fact->text, kCall)) {
      require_once(what.empty(), kCall);
      what = *call;
      function = static_cast<Function>(fact->number);
      op = static_cast<ReduceOp>(fact->index);
    }
  }
  std::ranges::copy_if(all(), std::back_inserter(events),
                       [](const Seen* seen) { return seen->place.phase == Phase::kCall; });
}

Events CallOfRank::of_kind(EventKind kind) const {
  Events found;
  std::ranges::copy_if(events, std::back_inserter(found),
                       [&](const Seen* seen) { return seen->kind == kind; });
  return found;
}

const std::vector<CallOfGroup>& calls_in(const Evidence& evidence) {
  return sorted_once(evidence, sort);
}

Predicate in_each_call(const CheckOfCall& check) {
  return [check](const Evidence& evidence) {
    return first_in(calls_in(evidence), [&](const CallOfGroup& call) {
      return call.prints() ? Finding() : check(call);
    });
  };
}

Finding on_each_rank(const CallOfGroup& call, const CheckOfRank& check) {
  return first_in(call.ranks, [&](const CallOfRank& rank) {
    Finding found = check(call, rank);
    return found.empty()
               ? found
               : on(rank.rank) + ", " + (rank.what.empty() ? "print_in_rank_order()" : rank.what) +
                     ": " +
                     std::move(found).or_at(rank.events.empty() ? nullptr : rank.events.back());
  });
}

Predicate on_each_rank(const CheckOfRank& check) {
  return in_each_call([check](const CallOfGroup& call) { return on_each_rank(call, check); });
}

}  // namespace ddp::testing
