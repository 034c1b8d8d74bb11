#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ddp {

/// What may happen in two orders when an operation completes. The usual one is the first.
enum class Choice : std::uint8_t {
  kCallbacks,  // of its future run before wait() returns; or after, when the waiter sleeps
  kOrder,      // among futures the first launched completes first; or the last one
  kPoll,       // the second poll of it says that it is complete; or a later one
  kSend,       // a send completes with its recv; or at once, as its bytes are copied
  kThread,     // a thread that launches it or has waited for it goes on; or the others do first
};

/// Which orders a run has: a number that says it all, so that the same number is the same schedule.
/// Decisions are numbered by rank and operation: in those `first` <= operation < `last` the schedule
/// decides, and elsewhere all is as usual. `draw` 0 is as usual, 1 takes the other order everywhere,
/// and 2 and more are drawn. No decision depends on the moment at which something arrives.
class Schedule {
 public:
  static constexpr std::int64_t kOperations = 100'000;  // whole runs have fewer

  Schedule() = default;
  explicit Schedule(std::int64_t draw, std::int64_t first = 0, std::int64_t last = kOperations - 1)
      : draw_(draw), first_(first), last_(last) {}
  static Schedule of_number(std::int64_t number);

  /// What SCHEDULE= says.
  std::int64_t number() const;
  std::int64_t draw() const { return draw_; }
  std::int64_t first() const { return first_; }
  std::int64_t last() const { return last_; }
  bool usual() const { return draw_ == 0; }

  /// Whether an operation takes the other order.
  bool other(Choice choice, int rank, std::int64_t operation) const;

 private:
  std::int64_t draw_ = 0;
  std::int64_t first_ = 0;
  std::int64_t last_ = 0;
};

/// Communication that fails, on all ranks alike.
struct Failure {
  std::int32_t step = -1;      // of the place in which it is launched
  std::int32_t operation = 0;  // its number among those that a rank launches in that step
  bool at_launch = false;      // the launch throws, and not the wait
};

/// The ranks of a run and how the network treats them.
struct World {
  int ranks = 2;
  /// The ranks of each further group: `subgroups[i]` are those of group i + 1. Group 0 has all.
  std::vector<std::vector<int>> subgroups;
  /// Withholds completions while any rank is in backward, so that what waits there is found.
  bool hold = true;
  /// Whether a collective is complete when its launch returns, as on a network that is much faster
  /// than its ranks. Excludes `hold`.
  bool prompt = false;
  /// Whether every operation takes ten minutes: a wait with a shorter limit fails, and it is not
  /// complete until it is waited for, or asked so often that nothing else can be meant.
  bool slow = false;
  std::optional<Failure> failure = {};
  /// Whether buffers in flight are touched on purpose, at moments that the referee draws, which the
  /// ranks' AccessWatch must find: see Evidence::doubts. It lives until the scenario goes to
  /// Phase::kCanary, the last of these moments.
  bool touch_on_purpose = false;
  /// Which of the orders that a network allows this one has.
  Schedule schedule = {};
};

/// The ranks of a group, in its order.
std::vector<int> members_of(const World& world, int group);

}  // namespace ddp
