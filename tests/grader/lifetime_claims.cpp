#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

#include "grader/calls.h"
#include "grader/compare.h"
#include "grader/scenario.h"
#include "grader/settings.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"

// Claims on errors, and on what outlives a step or a synchronizer.

namespace ddp::testing {

namespace {

// "N" and "M", if the text ends with "(index N, M)".
std::vector<std::string> indices_in(std::string_view text) {
  std::vector<std::string> indices;
  for (auto mark = text.rfind("(index "); mark < text.size(); ++mark) {
    if (std::isdigit(text[mark]) == 0) {
      indices.emplace_back();
    } else {
      indices.back() += text[mark];
    }
  }
  std::erase(indices, "");
  return indices;
}

bool has_number(std::string_view text, std::string_view number) {
  const auto digit = [&](std::size_t at) { return at < text.size() && std::isdigit(text[at]); };
  for (auto at = text.find(number); at != std::string_view::npos; at = text.find(number, at + 1)) {
    if (!digit(at - 1) && !digit(at + number.size())) {
      return true;
    }
  }
  return false;
}

// libtorch keeps a place in the list of a tensor's hooks for each that has been removed, in lists
// that double; so much for the three of a Training, in 150 repetitions.
constexpr std::int64_t kRemovedHooks = 28'800;

Finding not_alone(const TrainingOfRank& training, const TrainingStep& step) {
  return first_in(step[kAlone], [&](const auto& gradient) -> Finding {
    const std::int64_t index = gradient.first;
    const auto local = step[kLocal].find(index);
    if (local == step[kLocal].end()) {
      return on(training.rank) +
             ": a backward after the synchronizer was destroyed did not reach " + layer(index);
    }
    const std::string name =
        on(training.rank) + ": after the synchronizer was destroyed, this rank's own gradient of " +
        layer(index);
    return said(is_bitwise_equal({name}, gradient.second, local->second));
  });
}

Finding wrong_refusal(const Seen& threw, int rank, const Seen* launched) {
  const std::string_view exception = threw.detail;
  if (const auto call = rest_of(threw.text, kMustFail)) {
    return exception.starts_with("c10::Error") ? ""
           : exception.empty() ? on(rank) + ": " + *call + ": ended without an error"
                               : on(rank) + ": " + *call +
                                     ": threw another exception than communication's c10::Error: " +
                                     shown(threw.detail);
  }
  const std::string what = on(rank) + ": " + threw.text;
  if (exception.empty()) {
    return what + ": no error; c10::Error is due, which TORCH_CHECK throws";
  }
  if (launched != nullptr) {
    return what + ": " + describe_operation(*launched) +
           " was launched before the error was thrown; check everything first";
  }
  if (!exception.starts_with("c10::Error")) {
    return what + ": threw another exception than c10::Error, which TORCH_CHECK throws: " +
           shown(threw.detail);
  }
  const auto said = exception.substr(0, exception.find("argument #"));  // libtorch counts its own
  for (const std::string& index : indices_in(threw.text)) {
    if (!has_number(said, index)) {
      return c10::str(what, ": the error does not name the index ", index, ": ",
                      shown(threw.detail));
    }
  }
  return "";
}

// What backward launched before another synchronizer of the same parameters was destroyed, it launches
// after that, too.
Finding lost_hooks(const Evidence& evidence) {
  std::set<const TrainingOfRank*> launching;
  return first_on_ranks(
      evidence, [&](const TrainingOfRank& training, const TrainingStep& step, std::size_t) {
        const bool launched = std::ranges::any_of(step.launches(), [](const Seen* launch) {
          return launch->place.phase == Phase::kBackward;
        });
        if (launched) {
          launching.insert(&training);
        }
        return has_ended(step) && !launched && launching.contains(&training)
                   ? "backward launched nothing, as it had before another synchronizer of the same "
                     "parameters was destroyed: are this one's hooks gone, too?"
                   : "";
      });
}

}  // namespace

Finding destruction_is_silent(const Evidence& evidence) {
  return first_event(evidence, EventKind::kLaunch, [](const Seen& launch, int rank) {
    return launch.place.phase == Phase::kDestruction
               ? on(rank) + ": the destructor launched " + describe_operation(launch) +
                     ": other ranks may destroy theirs at another time, or never"
               : "";
  });
}

// What is left of a destroyed synchronizer.
Finding launched_or_thrown(const Evidence& evidence) {
  return first_rank(evidence, [](const SeenList& said) -> Finding {
    bool destroyed = false;
    for (const Seen& seen : said) {
      destroyed = destroyed || (seen.kind == EventKind::kFact && seen.text == kDestroyed.name);
      if (destroyed && seen.kind == EventKind::kLaunch) {
        return Finding("a backward after the synchronizer was destroyed launched " +
                       describe_operation(seen) + ": are its hooks still there?")
            .at(&seen, "extra operation");
      }
      if (seen.kind == EventKind::kThrew) {
        return Finding(seen.text + " threw an exception: are its hooks still there? It was: " +
                       shown(seen.detail))
            .at(&seen);
      }
    }
    return "";
  });
}

Finding gradients_are_alone(const Evidence& evidence) {
  return first_training(evidence, [](const TrainingOfRank& training, const auto&) {
    return first_in(training.steps,
                    [&](const auto& step) { return not_alone(training, step.second); });
  });
}

Finding destruction_ends_everything(const Evidence& evidence) {
  const auto grows = [](const Evidence& all) { return growth_in_steps(all, 150, kRemovedHooks); };
  return all_of({destruction_is_silent, launched_or_thrown, gradients_are_alone, every_step_reduces,
                 lost_hooks, grows})(evidence);
}

Finding nothing_grows(const Evidence& evidence) { return growth_in_steps(evidence, 150); }

// What libtorch and glibc keep of a thread that has ended.
constexpr std::int64_t kOfAThread = 256;

std::int64_t of_threads(const SeenList& of_rank) {
  const auto elsewhere = std::ranges::count_if(
      of_rank, [](const Seen& seen) { return seen.kind == EventKind::kLaunch && !seen.home; });
  return kOfAThread * elsewhere / 3;
}

// To one digit: what a run repeats, it says again in the same words.
std::int64_t rounded(std::int64_t count) {
  std::int64_t unit = 1;
  while (count / unit >= 10) {
    unit *= 10;
  }
  return (count + unit / 2) / unit * unit;
}

Finding growth_in_steps(const Evidence& evidence, int steps, std::int64_t heap_noise) {
  return first_rank(evidence, [&](const SeenList& said) -> Finding {
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> counts;  // as they were told
    for (const Seen& seen : said) {
      const auto what = rest_of(seen.text, kHeld);
      if (seen.kind == EventKind::kFact && what) {
        auto found = std::ranges::find_if(counts, [&](const auto& c) { return c.first == *what; });
        found = found == counts.end() ? counts.insert(found, {*what, {}}) : found;
        found->second.push_back(seen.number);
      }
    }
    for (const auto& [what, held] : counts) {
      if (held.size() < 3) {
        continue;  // the scenario ended early
      }
      // Twice, as an allocation made once is no growth; the heap's are of many sizes.
      const bool heap = what == "bytes of the heap";
      const auto growth = heap ? (held.at(2) - held.at(0)) / 2
                               : std::min(held.at(1) - held.at(0), held.at(2) - held.at(1));
      if (growth > (heap ? heap_noise + of_threads(said) : 0)) {
        const auto each = rounded((held.at(2) - held.at(0)) / (2 * steps));
        return what + " grew by " + (each > 0 ? "about " + std::to_string(each) : "less than one") +
               " with each repetition: something keeps them and never lets go";
      }
    }
    return "";
  });
}

Finding misuse_is_refused(const Evidence& evidence) {
  Finding all;  // of the first rank with any
  for (std::size_t rank = 0; rank < evidence.of.size() && all.empty(); ++rank) {
    const Seen* launched = nullptr;
    bool in_call = false;  // so that an attempt told within a call begins none
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == EventKind::kFact && seen.text == kAttempt.name && !in_call) {
        in_call = true;
        launched = nullptr;
      } else if (seen.kind == EventKind::kLaunch) {
        launched = &seen;
      } else if (seen.kind == EventKind::kThrew) {
        in_call = false;
        const Finding found = wrong_refusal(seen, static_cast<int>(rank), launched);
        if (!found.empty()) {
          all.text += (all.empty() ? "" : "\n") + found.text;
          all = std::move(all).at(&seen);
        }
      }
    }
  }
  return all.empty() ? surroundings_are_left_alone(evidence) : all;
}

Finding memory_is_bounded(const Evidence& evidence, const std::string& which) {
  constexpr std::int64_t kNumbers = 4096;  // for losses, counts, sizes
  std::int64_t limit = 0;                  // of each rank, which says it first
  std::string alive;
  return first_event(evidence, EventKind::kFact, [&](const Seen& fact, int rank) -> Finding {
    if (fact.text == kBytesAllowed) {
      limit = fact.number;
      alive.clear();
    } else if (const auto what = rest_of(fact.text, kAlive)) {
      alive += (alive.empty() ? "\n  alive at that moment: " : ", ") + std::to_string(fact.number) +
               " of " + *what;
    }
    const auto what = rest_of(fact.text, kBytes);
    return what && what->find(which) != std::string::npos && fact.number > limit + kNumbers
               ? on(rank) + ": " + *what + " take " + std::to_string(fact.number) + " bytes, " +
                     std::to_string(fact.number - limit) + " more than the " +
                     std::to_string(limit) + " allowed" + alive
               : "";
  });
}

}  // namespace ddp::testing
