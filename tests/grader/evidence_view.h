#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp/referee/evidence.h"
#include "grader/finding.h"

// One view of the evidence: what each rank said of a part of a scenario, such as a model, in all
// and in each step, by name.

namespace ddp::testing {

/// What a number, or a tensor, is called that ranks hand in: they tell it, and claims look for it,
/// by the same key.
template <EventKind kKind>
struct Key {
  std::string_view name;
  operator std::string() const { return std::string(name); }
};
using FactKey = Key<EventKind::kFact>;
using ValueKey = Key<EventKind::kValue>;

/// The group that a part is trained or called in: a fact of it, if it is not the world.
constexpr FactKey kGroup{"group"};

using Events = std::vector<const Seen*>;

/// Tensors that were handed in, also undefined ones, by index; -1 is that without one.
using Tensors = std::map<std::int64_t, at::Tensor>;

/// Throws c10::Error if not `once`: what a rank has told twice a stage may have told.
void require_once(bool once, std::string_view name);

/// What a rank said. Of what it did not say there is nothing: an empty list, no entry. Of what only the
/// tests say, once each, a tensor or number that was told twice throws c10::Error: whoever asks for it
/// cannot know which of them is a stage's.
class Said {
 public:
  void add(const Seen& seen);

  /// In order: all, those of a kind, or with a name.
  const Events& all() const { return all_; }
  const Events& of(EventKind kind) const { return found_in(kinds_, kind); }
  const Events& operator[](FactKey key) const { return found_in(facts_, key.name); }
  const Tensors& operator[](ValueKey key) const;
  const Events& launches() const { return of(EventKind::kLaunch); }

  /// By name.
  const std::map<std::string_view, Events>& facts() const { return facts_; }
  const std::map<std::string_view, Tensors>& tensors() const { return tensors_; }

  /// Whether a tensor was handed in without an index; and that, or std::out_of_range.
  bool has(ValueKey key) const { return (*this)[key].contains(-1); }
  const at::Tensor& tensor(ValueKey key) const { return (*this)[key].at(-1); }

  /// The number with this name and index, -1 being none; nothing if there is none.
  std::optional<std::int64_t> number(FactKey key, std::int64_t index = -1) const;
  /// The last event with this name; null if there is none.
  template <EventKind kKind>
  const Seen* last(Key<kKind> key) const {
    return last(kKind, key.name);
  }

 private:
  template <typename Map, typename Key>
  static const typename Map::mapped_type& found_in(const Map& map, const Key& key) {
    static const typename Map::mapped_type none;
    const auto found = map.find(key);
    return found == map.end() ? none : found->second;
  }

  const Seen* last(EventKind kind, std::string_view name) const;

  Events all_;
  std::map<EventKind, Events> kinds_;
  std::map<std::string_view, Events> facts_;
  std::map<std::string_view, Tensors> tensors_;
  std::set<std::string_view> twice_;  // names of tensors that share an index
};

/// What a rank said of a part, in all and in each step.
struct RankSaid : Said {
  int rank = 0;
  std::map<int, Said> steps;
};

/// The parts of a scenario: by number, then the ranks that have it, in the order of its group.
using Parts = std::map<int, std::vector<RankSaid>>;

/// Splits the evidence by `number_of`, such as that of a model or call (negative: ignored), then by
/// rank. Drops ranks' parts that do not `count`.
Parts parts_of(const Evidence& evidence, int (*number_of)(const Seen& seen),
               bool (*counts)(const Said& part));

/// What `sort` makes of the evidence of a scenario, made once: every claim asks for it, and
/// evidence is kept as long as the program runs. What `sort` throws, every claim gets.
template <typename Sorted>
const Sorted& sorted_once(const Evidence& evidence, Sorted (*sort)(const Evidence&)) {
  static std::map<std::pair<const Evidence*, decltype(sort)>, Sorted> all;
  const auto found = all.find({&evidence, sort});
  return found != all.end() ? found->second
                            : all.emplace(std::pair(&evidence, sort), sort(evidence)).first->second;
}

/// What `text` says after `prefix`; nothing if it begins otherwise.
std::optional<std::string> rest_of(std::string_view text, std::string_view prefix);

/// "rank 1"; "rank 1, step 2".
std::string on(int rank);
std::string where(const Seen& seen, int rank);

/// What `describe` says of the first event of a kind, with this name if one is given, on any rank;
/// that event is what the finding is about.
using Describe = std::function<Finding(const Seen& seen, int rank)>;
Finding first_event(const Evidence& evidence, EventKind kind, const Describe& describe,
                    std::string_view name = "");
template <EventKind kKind>
Finding first_event(const Evidence& evidence, Key<kKind> key, const Describe& describe) {
  return first_event(evidence, kKind, describe, key.name);
}

/// "rank 1: " and what `check` finds in all that the first rank said in which it finds something.
Finding first_rank(const Evidence& evidence,
                   const std::function<Finding(const SeenList& said)>& check);

}  // namespace ddp::testing
