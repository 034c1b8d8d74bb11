#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/evidence.h"
#include "ddp/referee/mailbox.h"
#include "ddp/referee/standstill.h"

namespace ddp {

/// The network of a world, in the ranks' parent: it takes what all ranks say on one thread, moves
/// their data, and keeps the evidence. It never runs a rank's code.
///
/// - The evidence is the same whichever rank is served first: each rank's events have an order of
///   their own, and what a rank sees of others comes with its operations.
/// - Ranks that disagree: all get one report that names them.
/// - A rank that waits for one that has ended is told so.
/// - Ranks that wait for each other, or run without end: see hang().
/// - A backward that stands still until the network is done: see World::hold and EventKind::kBlocked.
/// - A rank may say anything, as code under test can write into its mailbox: what no client would have
///   posted is refused, and ends that rank.
class Referee : public Companion {
 public:
  /// Ranks may say nothing until the deadline; with kNoDeadline none of them hangs, however still they
  /// stand.
  Referee(const World& world, const Mailroom& mailroom, const ForkOptions& options);

  std::chrono::milliseconds attend(const std::vector<pid_t>& processes) override;
  void rank_ended(int rank, bool finished) override;
  std::optional<Hang> hang() const override { return hang_; }
  std::optional<Hang> refused() override { return std::exchange(refused_, std::nullopt); }
  std::string activity(int rank) const override;

  /// The evidence, once all ranks have ended.
  Evidence take_evidence() { return std::move(evidence_); }

 private:
  using Clock = std::chrono::steady_clock;

  // A launched operation: its rank, and the place among what that rank said.
  struct Launched {
    int rank = 0;
    std::size_t index = 0;
  };
  // Collectives of a group: what each member has launched beyond those that are done.
  struct Group {
    std::vector<int> members;
    std::vector<std::list<Launched>> waiting;
    std::int64_t done = 0;
  };
  // Messages with the same ends and tag, in order; one of the lists is empty.
  struct Channel {
    std::list<Launched> sends;
    std::list<Launched> recvs;
  };
  using ChannelKey = std::tuple<GroupIndex, int, int, int>;  // group, from, to, tag

  struct Member {
    bool returned = false;
    bool failed = false;
    bool refused = false;  // nothing more is taken of it
    bool ended() const { return returned || failed; }
    Place place;
    bool in_backward = false;
    bool touch_due = false;  // a buffer is to be touched on purpose, and that must be found
    /// Where bytes of operations are that have not been delivered, by their beginning: their end.
    std::map<std::int64_t, std::int64_t> arena;
    /// Where the first backward since finish() begins, among what it said.
    std::optional<std::size_t> backward;
    bool blocked = false;       // in backward, which has been found
    std::int64_t awaited = -1;  // the operation that its home thread waits for
    std::map<std::int64_t, int> polls;
  };

  static constexpr std::size_t kNotLaunched = SIZE_MAX;  // in Evidence::launches

  static std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

  bool turn();
  bool has_news() const;
  void set_asleep(bool asleep);
  bool take(int rank);
  bool take_next(int rank);
  void refuse(int rank, const std::string& reason);
  void require_possible(int rank, const Event& event) const;
  void require_possible_launch(int rank, const Event& launch) const;
  void require_room(const Event& event);
  bool draws_touch(const Place& place);
  void settle_touch(int rank, bool found);
  void keep(int rank, Event event);
  at::Tensor kept(const at::Tensor& value) const;
  void act_on(int rank, const Seen& said);
  void on_phase(int rank);
  void on_launch(int rank, const Seen& launch);
  void on_done(int rank, const Seen& done);
  void on_wait(int rank, const Seen& wait);
  void on_poll(int rank, const Seen& poll);
  void match(Group& group);
  void match(const ChannelKey& key);
  void answer(const Launched& launched, Answer answer, const std::string& refusal);
  void give(const Launched& launched, Answer answer, const std::string& refusal = "");
  void dismiss_partners_of_ended();
  void dismiss_in(Group& group);
  void dismiss_in(const ChannelKey& key);
  void dismiss(std::list<Launched>& waiting, int gone, const std::string& missing);

  bool has_launched(int rank, std::int64_t operation) const;
  bool some_in_backward() const;
  void lift_hold(int rank, std::int64_t operation, const std::string& how);
  void release();
  void look_for_standstill(const std::vector<pid_t>& processes);
  std::optional<Launched> held_up(const std::vector<int>& running) const;
  std::optional<Hang> hang_of(int rank) const;
  int suspect() const;
  std::vector<int> awaited_by(int rank) const;
  std::string who_waits() const;
  std::string circle() const;

  const Seen& seen(const Launched& launched) const {
    return evidence_.of[launched.rank][launched.index];
  }
  char* bytes(const Launched& launched) {
    return boxes_[launched.rank].bytes(seen(launched).offset);
  }

  Evidence evidence_;
  std::shared_ptr<std::pmr::memory_resource> values_;  // for what ranks hand in
  std::vector<Mailbox> boxes_;
  const std::chrono::milliseconds patience_;
  const bool withhold_;
  std::vector<Member> members_;
  std::vector<Group> groups_;
  std::map<ChannelKey, Channel> channels_;
  std::vector<Launched> owed_;  // complete, and not said so
  std::size_t handed_in_ = 0;   // bytes of what is kept of this run
  std::random_device chance_;   // no rank can know what it draws
  bool lifted_ = false;         // the hold
  Clock::time_point last_news_ = Clock::now();
  std::optional<Clock::time_point> next_look_;  // at ranks of which nothing is heard
  Standstill standstill_;
  bool told_standstill_ = false;  // the ranks, since the last news
  std::optional<Hang> hang_;
  std::optional<Hang> refused_;
};

}  // namespace ddp
