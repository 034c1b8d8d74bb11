#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <set>

#include "claims.h"
#include "grader/training_evidence.h"

// What ranks launch, and when.

namespace ddp::testing {

namespace {

using Kind = Deed::Kind;

// The header's rules, played through for one step.
class Rules {
 public:
  explicit Rules(const Case& one) : case_(one) {}

  Deeds deeds(const Step& step) {
    for (const Pass& pass : step.passes) {
      play(pass);
    }
    std::for_each(left_.rbegin(), left_.rend(), [&](std::size_t i) { add(Kind::kReduce, i); });
    return deeds_;
  }

 private:
  struct Use {
    std::size_t unit;
    bool begun = false;
  };

  void add(Kind kind, std::size_t unit) { deeds_.push_back({kind, unit}); }

  void want(const std::vector<std::size_t>& wanted) {
    std::erase_if(whole_, [&](std::size_t i) { return std::ranges::count(wanted, i) == 0; });
    for (const std::size_t i : wanted) {
      if (whole_.insert(i).second) {
        add(Kind::kGather, i);
      }
    }
  }

  bool more(const std::vector<std::size_t>& wanted) const {
    return static_cast<int>(wanted.size()) <= case_.options.prefetch;
  }

  void forward(std::size_t unit, bool recorded) {
    std::vector<std::size_t> wanted = {unit};
    while (wanted.back() + 1 < case_.units.size() && more(wanted)) {
      wanted.push_back(wanted.back() + 1);
    }
    want(wanted);
    add(Kind::kForward, unit);
    const bool last = unit + 1 == case_.units.size();
    if (!recorded || !last || !case_.options.keep_last) {
      whole_.erase(unit);
    }
    if (recorded) {
      uses_.push_back({unit});
    }
  }

  // `complete`: no use of the unit is left in this backward.
  void backward(std::size_t use, bool complete, bool no_sync) {
    const std::size_t unit = uses_[use].unit;
    uses_[use].begun = true;
    std::vector<std::size_t> wanted = {unit};
    for (std::size_t i = use; i-- > 0 && more(wanted);) {
      if (!uses_[i].begun) {
        wanted.push_back(uses_[i].unit);
      }
    }
    want(wanted);
    add(Kind::kBackward, unit);
    if (!complete) {
      return;
    }
    whole_.erase(unit);
    if (no_sync) {
      left_.insert(unit);
    } else {
      left_.erase(unit);
      add(Kind::kReduce, unit);
    }
  }

  void play(const Pass& pass) {
    const bool recorded = pass.how == How::kTrain || pass.how == How::kForwardOnly;
    for (const std::size_t unit : pass.uses) {
      forward(unit, recorded || pass.how == How::kThrows);
    }
    if (pass.how == How::kThrows) {
      uses_.pop_back();
    }
    for (std::size_t i = pass.uses.size(); i-- > 0;) {
      const auto begin = pass.uses.begin();
      if (pass.how == How::kTrain) {
        const bool complete =
            std::count(begin, begin + static_cast<std::ptrdiff_t>(i), pass.uses[i]) == 0;
        backward(uses_.size() - pass.uses.size() + i, complete, pass.no_sync);
      } else if (pass.how == How::kCheckpoint) {
        forward(pass.uses[i], true);
        backward(uses_.size() - 1, true, pass.no_sync);
      }
    }
  }

  const Case& case_;
  Deeds deeds_;
  std::set<std::size_t> whole_;
  std::vector<Use> uses_;
  std::set<std::size_t> left_;  // units with gradients of NoSync
};

// "the all-gather of unit 2".
std::string name_of(const Deed& deed) {
  static constexpr const char* kNames[] = {"the all-gather", "the function", "the backward",
                                           "the reduce-scatter"};
  return std::string(kNames[static_cast<int>(deed.kind)]) + " of unit " + std::to_string(deed.unit);
}

// What a rank did in a step; `others`: what it launched beside.
struct Done {
  Deeds deeds;
  Events others;
};

bool is_norm(const Seen& launch) {
  return is_all_reduce(launch) && launch.elements == 1 && launch.dtype == at::kDouble;
}

Done done_in(const Said& said, const Case& one, int step) {
  Done done;
  const auto unit_with = [&](std::int64_t Bytes::*part, std::int64_t bytes) {
    std::size_t i = 0;
    while (i < one.units.size() && bytes_of(one, i).*part != bytes) {
      ++i;
    }
    return i;
  };
  bool norm_due = one.steps.at(step).max_norm > 0;
  for (const Seen* event : said.all()) {
    const Seen& seen = *event;
    if (seen.place.phase == Phase::kDestruction) {
      continue;
    }
    const bool forward = seen.text == kForward.name;
    if (seen.kind == EventKind::kFact && (forward || seen.text == kBackward.name)) {
      done.deeds.push_back({forward ? Kind::kForward : Kind::kBackward,
                            static_cast<std::size_t>(seen.index), event});
    }
    if (seen.kind != EventKind::kLaunch) {
      continue;
    }
    const bool gather = is_all_gather(seen);
    const std::size_t unit =
        gather ? unit_with(&Bytes::shard, seen.bytes) : unit_with(&Bytes::padded, seen.bytes);
    if (unit < one.units.size() && (gather || is_reduce_scatter(seen))) {
      done.deeds.push_back({gather ? Kind::kGather : Kind::kReduce, unit, event});
    } else if (!norm_due || !is_norm(seen) || seen.place.phase != Phase::kCall) {
      done.others.push_back(event);
    } else {
      norm_due = false;
    }
  }
  return done;
}

using Check = std::function<Finding(const Done& done, const Deeds& expected)>;

// What `check` finds in the first step of a rank. Of one rank alone nothing is said: it need not
// communicate.
Finding first_deeds(const Evidence& evidence, const Check& check) {
  const Case& one = case_of(evidence);
  if (ranks_of(one) == 1) {
    return "";
  }
  return first_in(ranks_in(evidence), [&](const RankSaid& rank) {
    return first_in(rank.steps, [&](const auto& numbered) {
      const auto& [number, step] = numbered;
      Finding found = has_ended(step)
                          ? check(done_in(step, one, number), expected_deeds(one, number))
                          : Finding();
      return found.empty() ? found
                           : in(rank, number) + ": " +
                                 std::move(found).or_at(last_in_step(evidence, rank.rank, number));
    });
  });
}

Deeds without(Deeds deeds, const std::set<Kind>& kinds) {
  std::erase_if(deeds, [&](const Deed& deed) { return kinds.contains(deed.kind); });
  return deeds;
}

// A few before one, that one, and a few behind it.
std::vector<std::string> names_around(const Deeds& deeds, std::ptrdiff_t place) {
  std::vector<std::string> names;
  const auto size = static_cast<std::ptrdiff_t>(deeds.size());
  for (auto i = std::max<std::ptrdiff_t>(0, place - 2); i < std::min(size, place + 5); ++i) {
    names.push_back(name_of(deeds[i]));
  }
  return names;
}

// What differs first in two orders.
Finding first_difference(const Deeds& deeds, const Deeds& expected) {
  const auto [actual, due] = std::ranges::mismatch(deeds, expected);
  if (actual == deeds.end() && due == expected.end()) {
    return "";
  }
  const std::string before =
      due == expected.begin() ? "first, " : "after " + name_of(*std::prev(due)) + ", ";
  return Finding(before + (actual == deeds.end() ? "nothing" : name_of(*actual)) +
                 " came next, where " + (due == expected.end() ? "nothing more" : name_of(*due)) +
                 " is expected")
      .at(actual == deeds.end() ? nullptr : actual->seen,
          due == expected.end() ? "extra operation" : "out of order")
      .in_order(names_around(expected, due - expected.begin()),
                names_around(deeds, actual - deeds.begin()));
}

// The last gather of a unit, if no use of it follows; null if one does.
const Seen* gathered_in_vain(const Deeds& deeds, std::size_t unit) {
  const auto last = std::find_if(deeds.rbegin(), deeds.rend(), [unit](const Deed& deed) {
    return deed.unit == unit && deed.kind != Kind::kReduce;
  });
  return last != deeds.rend() && last->kind == Kind::kGather ? last->seen : nullptr;
}

// "the all-gather of unit 1 was launched 3 times; it is due twice", and where the order is first another one.
Finding wrong_count(Kind kind, const Deeds& deeds, const Deeds& expected, std::size_t units) {
  for (std::size_t unit = 0; unit < units; ++unit) {
    const auto actual = std::ranges::count(deeds, Deed{kind, unit});
    const auto due = std::ranges::count(expected, Deed{kind, unit});
    if (actual == due) {
      continue;
    }
    const std::string count =
        name_of({kind, unit}) + " was " +
        (actual == 0 ? "never launched" : "launched " + how_often(actual)) +
        (due == 0 ? "; it is not due: " : "; it is due " + how_often(due) + ": ");
    const Seen* const in_vain =
        kind == Kind::kGather && actual > due ? gathered_in_vain(deeds, unit) : nullptr;
    if (in_vain != nullptr) {
      return Finding(count + "at the last launch the backward of each of its uses was already over")
          .at(in_vain, "extra operation");
    }
    return count + first_difference(deeds, expected);
  }
  return "";
}

}  // namespace

std::pair<std::int64_t, std::int64_t> reductions_of(const Evidence& evidence, int rank, int step,
                                                    std::size_t unit) {
  const Case& one = case_of(evidence);
  const Deed reduced{Kind::kReduce, unit};
  return {std::ranges::count(done_in(ranks_in(evidence).at(rank).steps.at(step), one, step).deeds,
                             reduced),
          std::ranges::count(expected_deeds(one, step), reduced)};
}

Deeds expected_deeds(const Case& one, int step) { return Rules(one).deeds(one.steps.at(step)); }

Finding nothing_else_is_launched(const Evidence& evidence) {
  return first_deeds(evidence, [&](const Done& done, const Deeds&) -> Finding {
    if (done.others.empty()) {
      return "";
    }
    return Finding(describe_operation(*done.others.front()) +
                   " is neither needed nor allowed: a step makes all-gathers of whole shards and "
                   "reduce-scatters of whole padded gradients, and for the norm one all-reduce "
                   "of one float64 number")
        .at(done.others.front(), "extra operation");
  });
}

Finding each_use_is_gathered(const Evidence& evidence) {
  return first_deeds(evidence, [&](const Done& done, const Deeds& expected) {
    return wrong_count(Kind::kGather, done.deeds, expected, case_of(evidence).units.size());
  });
}

Finding units_are_gathered(const Evidence& evidence) {
  return first_in(ranks_in(evidence), [&](const RankSaid& rank) {
    const bool gathers = std::ranges::any_of(
        rank.launches(), [](const Seen* launch) { return is_all_gather(*launch); });
    return evidence.of.size() > 1 && !gathers
               ? on(rank.rank) + " has gathered nothing, so no unit was ever whole"
               : "";
  });
}

Finding each_gradient_is_reduced(const Evidence& evidence) {
  return first_deeds(evidence, [&](const Done& done, const Deeds& expected) {
    return wrong_count(Kind::kReduce, done.deeds, expected, case_of(evidence).units.size());
  });
}

Finding gathers_have_their_moment(const Evidence& evidence) {
  return first_deeds(evidence, [](const Done& done, const Deeds& expected) {
    return first_difference(without(done.deeds, {Kind::kReduce}),
                            without(expected, {Kind::kReduce}));
  });
}

Finding reduce_scatters_have_their_moment(const Evidence& evidence) {
  return first_deeds(evidence, [](const Done& done, const Deeds& expected) {
    Finding text = first_difference(without(done.deeds, {Kind::kGather, Kind::kForward}),
                                    without(expected, {Kind::kGather, Kind::kForward}));
    const bool gathers_are_right =
        without(done.deeds, {Kind::kReduce}) == without(expected, {Kind::kReduce});
    return text.empty() && gathers_are_right ? first_difference(done.deeds, expected) : text;
  });
}

Finding one_is_reduced_at_a_time(const Evidence& evidence) {
  return first_in(ranks_in(evidence), [](const RankSaid& rank) -> Finding {
    const Seen* under_way = nullptr;
    for (const Seen* seen : rank.all()) {
      if (seen->kind == EventKind::kLaunch && is_reduce_scatter(*seen)) {
        if (under_way != nullptr) {
          return Finding(in(rank, seen->place.step) + ": " + describe_operation(*seen) +
                         " was launched before " + describe_operation(*under_way) +
                         " was waited for: one is under way at most")
              .at(seen, "launched too early");
        }
        under_way = seen;
      } else if (seen->kind == EventKind::kDone && under_way != nullptr &&
                 seen->operation == under_way->operation) {
        under_way = nullptr;
      }
    }
    return "";
  });
}

Finding no_sync_reduces_nothing(const Evidence& evidence) {
  return first_in(ranks_in(evidence), [](const RankSaid& rank) -> Finding {
    bool inside = false;
    for (const Seen* seen : rank.all()) {
      if (seen->kind == EventKind::kFact && seen->text == kPass.name) {
        inside = seen->number != 0;
      } else if (seen->kind == EventKind::kPhase && seen->place.phase == Phase::kFinish) {
        inside = false;
      } else if (inside && seen->kind == EventKind::kLaunch && !is_all_gather(*seen)) {
        return Finding(in(rank, seen->place.step) + ": " + describe_operation(*seen) +
                       " was launched inside a NoSync scope: ask in backward")
            .at(seen, "extra operation");
      }
    }
    return "";
  });
}

}  // namespace ddp::testing
