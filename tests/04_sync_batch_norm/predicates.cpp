#include <algorithm>
#include <set>

#include "claims.h"
#include "grader/compare.h"
#include "grader/training_evidence.h"

namespace ddp::testing {

namespace {

const std::vector<std::string> kState = {"running_mean", "running_var", "num_batches_tracked"};
const std::vector<std::string> kAll = {"output",
                                       "running_mean",
                                       "running_var",
                                       "num_batches_tracked",
                                       "gradient of the input",
                                       "gradient of the weight",
                                       "gradient of the bias"};

Finding changed(const Batch& batch, const UseOnRank& use, const std::string& name) {
  const bool is_state = std::ranges::find(kState, name) != kState.end();
  const bool comes_later = name == "output" || name == "upstream";
  at::Tensor before = use.at(name, comes_later ? kAfterForward : kBefore);
  for (const Moment moment : {kAfterForward, kAfterBackward, kAtEnd}) {
    const bool skip = is_state && (moment == kAtEnd || (use.training && moment == kAfterForward) ||
                                   use.last(kCallerChanges) != nullptr);
    const at::Tensor now = use.at(name, moment);
    if (!skip && now.defined() && before.defined()) {
      const char* const when[] = {"", "forward", "backward", "later uses"};
      const Subject subject{describe(batch, use) + ": after " + when[moment] + " the " + name +
                            ", which nobody may change,"};
      if (const auto same = is_bitwise_equal(subject, now, before); !same) {
        return same.difference();
      }
    }
    before = now.defined() && moment == kAfterForward ? now : before;
  }
  return "";
}

// How many numbers a rank contributes. Whole structures may travel as bytes; their contents are
// unknown, so they count as float64, as do those of an all-to-all.
std::int64_t numbers_in(const Seen& launch) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(launch.dtype));
  return size == 1 || launch.elements == 0 ? launch.bytes / 8 : launch.elements;
}

// Operations that carry data; the price of others is another claim's business.
Events with_data(Events launches) {
  std::erase_if(launches, [](const Seen* launch) { return launch->bytes == 0; });
  return launches;
}

Finding wrong_launches(const Events& launches, int due, std::int64_t most, std::size_t ranks) {
  const auto sent = with_data(launches);
  const bool alone = ranks == 1 && sent.empty();
  if (due == 0 && !sent.empty()) {
    return Finding(" communicated, although nobody needs it:" + list_of(sent))
        .at(sent.front(), "extra operation");
  }
  if (!alone &&
      (static_cast<int>(sent.size()) != due || (due > 0 && c10d::isP2POp(sent[0]->type)))) {
    return Finding(" should launch one collective; it launched:" + list_of(sent))
        .at(sent.empty() ? nullptr : sent.back(),
            static_cast<int>(sent.size()) > due ? "extra operation" : "");
  }
  const auto elsewhere =
      std::ranges::find_if(launches, [](const Seen* launch) { return !launch->home; });
  if (elsewhere != launches.end()) {
    return Finding(" launched " + describe_operation(**elsewhere) +
                   " on another thread than the one that runs it")
        .at(*elsewhere);
  }
  const auto large =
      std::ranges::find_if(sent, [&](const Seen* launch) { return numbers_in(*launch) > most; });
  return large == sent.end() ? ""
                             : " should send at most " + std::to_string(most) +
                                   " elements from each rank; it launched:" + list_of(sent);
}

}  // namespace

namespace {

// The last operation of a use; null if it has none.
const Seen* last_of(const UseOnRank& use) {
  const auto& launches = use.backward.empty() ? use.forward : use.backward;
  return launches.empty() ? nullptr : launches.back();
}

}  // namespace

// What `check` finds in the first batch of a mode; in the first of float64, if the others are right.
Predicate in_batches(Mode mode, std::function<Finding(const Batch&)> check) {
  return [mode, check = std::move(check)](const Evidence& evidence) -> Finding {
    Finding of_float64;
    bool right = false;  // of another dtype
    for (const Batch& batch : batches_in(evidence)) {
      const bool is_float64 = batch[0].at("input", kBefore).scalar_type() == at::kDouble;
      const bool known = is_float64 && !of_float64.empty();
      const bool of_mode = batch[0].training == (mode == kTraining);
      if (Finding finding = of_mode && !known ? check(batch) : Finding(); !finding.empty()) {
        finding = std::move(finding).or_at(last_of(batch[0]));
        if (!is_float64) {
          finding.elsewhere = {kFloat64};
          return finding;
        }
        of_float64 = std::move(finding);
        of_float64.edge_cases = {kFloat64};
      } else {
        right = right || (of_mode && !is_float64);
      }
    }
    of_float64.holds_otherwise = right;
    return of_float64;
  };
}

Predicate right(Mode mode, const std::vector<std::string>& names) {
  return in_batches(mode, [names](const Batch& batch) {
    return wrong_values(batch, names.empty() ? kAll : names);
  });
}

Predicate all_right() { return all_of({right(kTraining), right(kEvaluation)}); }

// What does nothing communicates nothing, changes nothing and calls no one.
Finding something_is_normalized(const Batch& batch) {
  return first_in(batch, [&](const UseOnRank& use) {
    const at::Tensor input = use.at("input", kBefore);
    return input.numel() > 0 && is_bitwise_equal({}, use.at("output", kAfterForward), input)
               ? describe(batch, use) + ": the output is the input"
               : "";
  });
}

Finding something_is_communicated(const Evidence& evidence) {
  const bool silent =
      std::ranges::any_of(evidence.launches, [](const auto& l) { return l.empty(); });
  return silent && evidence.world.ranks > 1 ? "a rank communicated nothing" : "";
}

// Running statistics and counter are changed by forward in training, in place; nothing else is.
Finding nothing_else_changes(const Batch& batch) {
  return first_in(batch, [&](const UseOnRank& use) {
    Finding found = first_in(use.tensors(), [&](const auto& moments) {
      return changed(batch, use, std::string(moments.first));
    });
    return !found.empty() ? found : first_in(use.facts(), [&](const auto& fact) -> Finding {
      const std::string where = describe(batch, use) + ": ";
      if (const auto what = rest_of(fact.first, "moved: ")) {
        return where + *what +
               " has been replaced by another tensor, or moved to another storage: write the new "
               "values into the old one";
      }
      const auto what = rest_of(fact.first, "unasked: ");
      return what ? where + "there is now a " + *what + ", which requires none: leave it alone"
                  : "";
    });
  });
}

// Sums in a different order on each rank would not have the same bits.
Finding same_on_all_ranks(const Batch& batch) {
  return first_in(batch, [&](const UseOnRank& use) {
    return first_in(std::vector<std::string>{"running_mean", "running_var"}, [&](const auto& name) {
      const Subject subject{describe(batch, use) + ": the " + name + ", compared with " +
                            on(batch[0].rank) + "'s,"};
      const at::Tensor first = batch[0].at(name, kAfterForward);
      return said(is_bitwise_equal(subject, use.at(name, kAfterForward), first));
    });
  });
}

Finding one_collective_each_way(const Batch& batch) {
  return first_in(batch, [&](const UseOnRank& use) -> Finding {
    const std::int64_t channels = use.at("input", kBefore).size(1);
    Finding text = wrong_launches(use.forward, 1, 2 * channels + 1, batch.size());
    if (!text.empty()) {
      return describe(batch, use) + ": forward" + std::move(text);
    }
    text = wrong_launches(use.backward, use.wants_input ? use.backwards : 0, 2 * channels,
                          batch.size());
    return text.empty() ? text
                        : describe(batch, use) + ": backward" +
                              (use.wants_input ? "" : ", where the input requires no gradient,") +
                              std::move(text);
  });
}

Finding evaluation_is_silent(const Batch& batch) {
  return first_in(batch, [&](const UseOnRank& use) {
    return first_in(std::vector{use.forward, use.backward}, [&](const Events& launches) {
      return launches.empty() ? Finding()
                              : Finding(describe(batch, use) + " communicated:" + list_of(launches))
                                    .at(launches.front(), "extra operation");
    });
  });
}

Finding evaluation_communicates(const Evidence& evidence) {
  return in_batches(kEvaluation, evaluation_is_silent)(evidence).empty()
             ? ""
             : "evaluation communicates, which another test reports";
}

Finding life_is_silent(const Evidence& evidence) {
  return first_event(evidence, EventKind::kLaunch, [](const Seen& launch, int rank) {
    const bool construction = launch.place.phase == Phase::kConstruction;
    return construction || launch.place.phase == Phase::kDestruction
               ? where(launch, rank) + ": the " + (construction ? "construction" : "destruction") +
                     " of a module launched " + describe_operation(launch)
               : "";
  });
}

Finding nothing_is_left_in_flight(const Evidence& evidence) {
  std::vector<std::set<std::int64_t>> done(evidence.of.size());
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == EventKind::kDone) {
        done[rank].insert(seen.operation);
      }
    }
  }
  return first_event(evidence, EventKind::kLaunch, [&](const Seen& launch, int rank) {
    return done[rank].contains(launch.operation)
               ? ""
               : where(launch, rank) + ": " + describe_operation(launch) +
                     " was never waited for: wait for each, even if its result is not needed";
  });
}

Finding graph_keeps_the_group(const Evidence& evidence) {
  return first_event(evidence, EventKind::kFact, [](const Seen& fact, int rank) {
    if (fact.text == "the group is there still") {
      return where(fact, rank) +
             ": the graph and the caller's handle are gone, but something still holds the "
             "process group";
    }
    return fact.text == "the group is gone"
               ? where(fact, rank) +
                     ": after forward the caller dropped its handle, and the process group was "
                     "gone: the graph must keep alive what backward needs"
               : "";
  });
}

}  // namespace ddp::testing
