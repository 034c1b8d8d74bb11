#include <algorithm>
#include <iterator>
#include <utility>

#include "claims.h"
#include "grader/training_evidence.h"

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

std::vector<CallOfGroup> sort(const Evidence& evidence) {
  std::vector<CallOfGroup> whole;
  for (auto& [step, ranks] :
       parts_of<CallOfRank>(evidence, [](const Seen& seen) { return seen.place.step; })) {
    if (ranks.size() == members_of(evidence.world, ranks[0].group).size()) {
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        ranks[i].position = static_cast<int>(i);
      }
      whole.push_back({step, std::move(ranks)});
    }
  }
  return whole;
}

}  // namespace

void CallOfRank::add(const Seen& seen) {
  if (seen.place.phase == Phase::kCall) {
    events.push_back(&seen);
  }
  if (seen.kind == EventKind::kFact) {
    take_fact(seen, *this);
  } else if (seen.kind == EventKind::kValue) {
    value[seen.text] = seen.value;
    ended = ended || seen.text == "result" || seen.text == "text";
  }
}

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
  return [check](const Evidence& evidence) -> Finding {
    for (const CallOfGroup& call : calls_in(evidence)) {
      if (Finding text = call.prints() ? Finding() : check(call); !text.empty()) {
        return text;
      }
    }
    return "";
  };
}

Finding on_each_rank(const CallOfGroup& call, const CheckOfRank& check) {
  for (const CallOfRank& rank : call.ranks) {
    if (Finding found = check(call, rank); !found.empty()) {
      return "rank " + std::to_string(rank.rank) + ", " +
             (rank.what.empty() ? "print_in_rank_order()" : rank.what) + ": " +
             std::move(found).or_at(rank.events.empty() ? nullptr : rank.events.back());
    }
  }
  return "";
}

Predicate on_each_rank(const CheckOfRank& check) {
  return in_each_call([check](const CallOfGroup& call) { return on_each_rank(call, check); });
}

}  // namespace ddp::testing
