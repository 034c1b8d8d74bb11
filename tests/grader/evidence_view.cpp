#include "grader/evidence_view.h"

#include <algorithm>
#include <utility>

namespace ddp::testing {

void require_once(bool once, std::string_view name) {
  TORCH_CHECK(once, "a rank told \"", name, "\" twice, and the tests tell it once");
}

void Said::add(const Seen& seen) {
  all_.push_back(&seen);
  kinds_[seen.kind].push_back(&seen);
  if (seen.kind == EventKind::kFact) {
    facts_[seen.text].push_back(&seen);
  } else if (seen.kind == EventKind::kValue &&
             !tensors_[seen.text].try_emplace(seen.index, seen.value).second) {
    twice_.insert(seen.text);
  }
}

const Tensors& Said::operator[](ValueKey key) const {
  require_once(!twice_.contains(key.name), key.name);
  return found_in(tensors_, key.name);
}

std::optional<std::int64_t> Said::number(FactKey key, std::int64_t index) const {
  std::optional<std::int64_t> number;
  for (const Seen* fact : (*this)[key]) {
    if (fact->index == index) {
      require_once(!number, key.name);
      number = fact->number;
    }
  }
  return number;
}

const Seen* Said::last(EventKind kind, std::string_view name) const {
  const Seen* last = nullptr;
  for (const Seen* seen : of(kind)) {
    last = seen->text == name ? seen : last;
  }
  return last;
}

Parts parts_of(const Evidence& evidence, int (*number_of)(const Seen& seen),
               bool (*counts)(const Said& part)) {
  std::map<int, std::map<int, RankSaid>> sorted;  // by number, then rank
  for (int rank = 0; rank < static_cast<int>(evidence.of.size()); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      if (const int number = number_of(seen); number >= 0) {
        RankSaid& part = sorted[number][rank];
        part.rank = rank;
        part.add(seen);
        if (seen.place.step >= 0) {
          part.steps[seen.place.step].add(seen);
        }
      }
    }
  }
  Parts parts;
  for (auto& [number, by_rank] : sorted) {
    std::erase_if(by_rank, [&](const auto& entry) { return !counts(entry.second); });
    const auto group = by_rank.empty() ? 0 : by_rank.begin()->second.number(kGroup).value_or(0);
    for (const int rank : members_of(evidence.world, static_cast<int>(group))) {
      if (const auto found = by_rank.find(rank); found != by_rank.end()) {
        parts[number].push_back(std::move(found->second));
      }
    }
  }
  return parts;
}

std::optional<std::string> rest_of(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) ? std::optional(std::string(text.substr(prefix.size())))
                                  : std::nullopt;
}

std::string on(int rank) { return "rank " + std::to_string(rank); }

std::string where(const Seen& seen, int rank) {
  return on(rank) + (seen.place.step < 0 ? "" : ", step " + std::to_string(seen.place.step));
}

Finding first_event(const Evidence& evidence, EventKind kind, const Describe& describe,
                    std::string_view name) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == kind && (name.empty() || seen.text == name)) {
        if (Finding finding = describe(seen, static_cast<int>(rank)); !finding.empty()) {
          return std::move(finding).or_at(&seen);
        }
      }
    }
  }
  return "";
}

Finding first_rank(const Evidence& evidence,
                   const std::function<Finding(const SeenList& said)>& check) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    if (Finding finding = check(evidence.of[rank]); !finding.empty()) {
      return on(static_cast<int>(rank)) + ": " + std::move(finding);
    }
  }
  return "";
}

}  // namespace ddp::testing
