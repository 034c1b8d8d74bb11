#include <algorithm>
#include <iterator>
#include <utility>

#include "claims.h"
#include "support/training_evidence.h"

namespace ddp::testing {

namespace {

void take_fact(const Seen& seen, CallOfRank& call) {
  const std::string name = seen.text;
  constexpr std::string_view kCall = "call: ";
  if (name.starts_with(kCall)) {
    call.what = name.substr(kCall.size());
    call.function = static_cast<Function>(seen.number);
    call.op = static_cast<ReduceOp>(seen.index);
  } else if (name == "group" || name == "prints") {
    call.group = static_cast<GroupIndex>(seen.number);
  } else if (name == "values") {
    call.values = static_cast<Values>(seen.number);
  } else if (name == "strided") {
    call.strided = seen.number != 0;
  } else {
    call.facts[name] = seen.number;
  }
}

// By step.
std::map<int, CallOfRank> calls_of(const SeenList& said, int rank) {
  std::map<int, CallOfRank> calls;
  for (const Seen& seen : said) {
    if (seen.place.step < 0) {
      continue;
    }
    CallOfRank& call = calls[seen.place.step];
    call.rank = rank;
    if (seen.place.phase == Phase::kCall) {
      call.events.push_back(&seen);
    }
    if (seen.kind == EventKind::kFact) {
      take_fact(seen, call);
    } else if (seen.kind == EventKind::kValue) {
      call.value[seen.text] = seen.value;
      call.ended = call.ended || seen.text == "result" || seen.text == "text";
    }
  }
  return calls;
}

std::vector<CallOfGroup> sort(const Evidence& evidence) {
  std::vector<std::map<int, CallOfRank>> by_rank;
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    by_rank.push_back(calls_of(evidence.of[rank], static_cast<int>(rank)));
  }
  std::map<int, CallOfGroup> calls;
  for (const auto& of_rank : by_rank) {
    for (const auto& [step, first] : of_rank) {
      if (!first.ended || calls.contains(step)) {
        continue;
      }
      CallOfGroup call{step, {}};
      for (const int member : members_of(evidence.world, first.group)) {
        if (const auto part = by_rank[member].find(step);
            part != by_rank[member].end() && part->second.ended) {
          call.ranks.push_back(part->second);
          call.ranks.back().position = call.size() - 1;
        }
      }
      calls[step] = std::move(call);
    }
  }
  std::vector<CallOfGroup> whole;
  for (auto& [step, call] : calls) {
    if (call.ranks.size() == members_of(evidence.world, call.ranks[0].group).size()) {
      whole.push_back(std::move(call));
    }
  }
  return whole;
}

}  // namespace

std::vector<const Seen*> CallOfRank::of_kind(EventKind kind) const {
  std::vector<const Seen*> found;
  std::ranges::copy_if(events, std::back_inserter(found),
                       [&](const Seen* seen) { return seen->kind == kind; });
  return found;
}

const std::vector<CallOfGroup>& calls_in(const Evidence& evidence) {
  return sorted_once(evidence, sort);
}

Predicate in_each_call(const CheckOfCall& check) {
  return [check](const Evidence& evidence) {
    for (const CallOfGroup& call : calls_in(evidence)) {
      if (std::string text = call.prints() ? "" : check(call); !text.empty()) {
        return text;
      }
    }
    return std::string();
  };
}

std::string on_each_rank(const CallOfGroup& call, const CheckOfRank& check) {
  for (const CallOfRank& rank : call.ranks) {
    if (const std::string text = check(call, rank); !text.empty()) {
      return "rank " + std::to_string(rank.rank) + ", " +
             (rank.what.empty() ? "print_in_rank_order()" : rank.what) + ": " + text;
    }
  }
  return "";
}

Predicate on_each_rank(const CheckOfRank& check) {
  return in_each_call([check](const CallOfGroup& call) { return on_each_rank(call, check); });
}

}  // namespace ddp::testing
