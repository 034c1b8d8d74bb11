#include <algorithm>
#include <utility>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/referee.h"

// Who waits, for whom, and who will never go on.

namespace ddp {

namespace {

using std::chrono::milliseconds;

// A rank waits if it is found in the same sleep so often, and computes without end if it takes so
// much processor time without a word, and is looked at meanwhile. Looks and processor time, since
// on a loaded machine seconds say little, and one that was itself stopped for a while counts that
// as processor time.
constexpr int kLooksInBackward = 50;
constexpr int kLooksWhileOthersRun = 300;
constexpr int kLooksAtEnd = 400;
constexpr int kLooksAtStopped = 100;
constexpr int kLooksAtEndless = 50;  // processor time is told already; more take minutes under load
constexpr auto kEndless = milliseconds(3'000);
// A rank that has had so much is none that waits, however long a loaded machine lets it take.
constexpr auto kComputes = milliseconds(500);
// What a rank may say in a run; bodies say a tenth of it at most. All of it is kept.
constexpr std::size_t kMostEvents = std::size_t{1} << 20;

}  // namespace

void Referee::look_for_standstill(const std::vector<pid_t>& processes) {
  standstill_.look(processes);
  bool all_still = true;
  bool all_said = true;
  bool some_compute = false;
  int least_still = kLooksAtEnd;
  std::optional<Launched> held_up;
  for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
    const Member& member = members_[rank];
    if (member.ended()) {
      continue;
    }
    const Standstill::Watched& watched = standstill_.of(rank);
    least_still = std::min(least_still, watched.still);
    if (member.in_backward && watched.still >= kLooksInBackward && !held_up) {
      const auto held = std::ranges::find(owed_, rank, &Launched::rank);
      if (held != owed_.end()) {
        held_up = *held;
      }
    }
    if (patience_ >= kNoDeadline) {
      continue;
    }
    if (watched.stopped >= kLooksAtStopped) {
      hang_ = Hang{rank, "was stopped by a signal (SIGSTOP or SIGTSTP), and nobody lets it go on"};
      return;
    }
    if (watched.computing() >= kEndless && standstill_.looks() >= kLooksAtEndless) {
      hang_ = Hang{rank, "computes without end: nothing was heard of it for " +
                             std::to_string(kEndless.count() / 1'000) + " s of processor time"};
      return;
    }
    some_compute = some_compute || watched.computing() >= kComputes;
    all_said = all_said && member.awaited >= 0 && watched.threads == 1;
    all_still = all_still && watched.still >= kLooksAtEnd;
  }
  if (held_up && (least_still >= kLooksInBackward ||
                  standstill_.of(held_up->rank).still >= kLooksWhileOthersRun)) {
    return lift_hold(held_up->rank, seen(*held_up).operation,
                     "was waited for inside backward (by a future, or by another thread that "
                     "backward waited for)");
  }
  if (patience_ >= kNoDeadline) {
    return;
  }
  if (owed_.empty() && (all_still || all_said)) {
    hang_ = Hang{suspect(), "waits without end" + who_waits()};
  } else if (!some_compute && standstill_.looks() > kLooksAtEnd &&
             Clock::now() - last_news_ >= patience_) {
    hang_ = Hang{suspect(),
                 "nothing was heard of any rank for " + std::to_string(patience_.count()) + " ms"};
  }
}

bool Referee::some_in_backward() const {
  return std::ranges::any_of(
      members_, [](const Member& member) { return member.in_backward && !member.ended(); });
}

// Backward stands still: that is the finding, and the ranks may go on. One for each rank, so that it
// does not matter which is the first.
void Referee::lift_hold(int rank, std::int64_t operation, const std::string& how) {
  if (!evidence_.world.hold || std::exchange(members_[rank].blocked, true)) {
    return;
  }
  Seen finding;
  finding.kind = EventKind::kBlocked;
  finding.operation = operation;
  finding.order = static_cast<std::int64_t>(evidence_.of[rank].size());
  finding.place = evidence_.of[rank].back().place;
  finding.text = how;
  evidence_.of[rank].push_back(finding);
  lifted_ = true;
  release();
}

void Referee::release() {
  for (const Launched& launched : std::exchange(owed_, {})) {
    give(launched, Answer::kComplete);
  }
}

void Referee::rank_ended(int rank, bool finished) {
  turn();  // what it said last
  if (!finished) {
    members_[rank].failed = true;
    if (!some_in_backward()) {
      release();
    }
    dismiss_partners_of_ended();
  }
}

// A rank that waits for one that has ended waits in vain.
void Referee::dismiss_partners_of_ended() {
  for (Group& group : groups_) {
    dismiss_in(group);
  }
  for (auto& [key, channel] : channels_) {
    dismiss_in(key);
  }
}

void Referee::dismiss(std::deque<Launched>& waiting, int gone, const std::string& missing) {
  for (const Launched& launched : waiting) {
    if (launched.sent) {
      continue;
    }
    const char* how = members_[gone].failed ? " has failed" : " has already returned";
    answer(launched, Answer::kGone,
           "waits in vain for " + describe_operation(seen(launched)) + ": " + rank_text(gone) +
               how + missing);
  }
  waiting.clear();
}

void Referee::dismiss_in(Group& group) {
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = members_[group.members[i]];
    if (group.waiting[i].empty() && member.ended()) {
      for (auto& list : group.waiting) {
        dismiss(list, group.members[i], " without joining it");
      }
    }
  }
}

void Referee::dismiss_in(const ChannelKey& key) {
  const auto [group, from, to, tag] = key;
  Channel& channel = channels_[key];
  if (members_[from].ended()) {
    dismiss(channel.recvs, from, " without a send for it");
  }
  if (members_[to].ended()) {
    dismiss(channel.sends, to, " without a recv for it");
  }
}

bool Referee::says_too_much(int rank) {
  const bool too_much = evidence_.of[rank].size() >= kMostEvents;
  if (too_much) {
    hang_ = Hang{rank, "told the network of more than " + std::to_string(kMostEvents) + " things"};
  }
  return too_much;
}

// A rank that still runs, and rather one that the others wait for.
int Referee::suspect() const {
  int suspect = -1;
  for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
    const Member& member = members_[rank];
    if (!member.ended() &&
        (suspect < 0 || (member.awaited < 0 && members_[suspect].awaited >= 0))) {
      suspect = rank;
    }
  }
  return std::max(suspect, 0);
}

// The ranks that a waiting rank waits for; none if it does not wait.
std::vector<int> Referee::awaited_by(int rank) const {
  if (members_[rank].awaited < 0) {
    return {};
  }
  const Seen& launch = evidence_.launch_of(rank, members_[rank].awaited);
  const Group& group = groups_[launch.group];
  if (c10d::isP2POp(launch.type)) {
    return {group.members[launch.peer]};
  }
  std::vector<int> ranks;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (group.waiting[i].empty()) {
      ranks.push_back(group.members[i]);
    }
  }
  return ranks;
}

// The circle in which ranks wait for each other, if they do, and a line for each that waits.
std::string Referee::who_waits() const {
  std::string text;
  for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
    const std::vector<int> others = awaited_by(rank);
    if (others.empty()) {
      continue;
    }
    const Seen& launch = evidence_.launch_of(rank, members_[rank].awaited);
    const bool message = c10d::isP2POp(launch.type);
    text += "\n" + rank_text(rank) + " waits for " + describe_operation(launch);
    text += message && launch.type != c10d::OpType::SEND ? ", from " : ", until ";
    for (const int other : others) {
      text += (other == others.front() ? "" : ", ") + rank_text(other);
    }
    text += !message ? " joins it" : launch.type == c10d::OpType::SEND ? " receives it" : "";
  }
  return text.empty() ? " for nothing that the network could give" : circle() + ":" + text;
}

// The ranks that wait for each other; empty if there is no circle.
std::string Referee::circle() const {
  std::vector<int> path;
  std::size_t begin = 0;
  for (int rank = suspect();;) {
    begin = std::ranges::find(path, rank) - path.begin();
    const std::vector<int> others = awaited_by(rank);
    if (begin < path.size() || others.empty()) {
      break;
    }
    path.push_back(rank);
    rank = others.front();
  }
  std::string text;
  for (std::size_t i = begin; i < path.size(); ++i) {
    text += rank_text(path[i]) + " -> ";
  }
  return text.empty() ? "" : ", in a circle: " + text + rank_text(path[begin]);
}

std::string Referee::activity(int rank) const {
  const auto& said = evidence_.of[rank];
  const auto last = std::find_if(said.rbegin(), said.rend(), [](const Seen& seen) {
    return seen.home && seen.operation >= 0 && seen.place.phase != Phase::kCanary &&
           (seen.kind == EventKind::kLaunch || seen.kind == EventKind::kWait ||
            seen.kind == EventKind::kDone);
  });
  const std::string doing = members_[rank].returned ? "has returned" : "runs its own code";
  if (last == said.rend()) {
    return doing + "; no operation launched";
  }
  const std::string operation = describe_operation(evidence_.launch_of(rank, last->operation));
  if (last->kind == EventKind::kWait) {
    return "waits for " + operation;
  }
  return doing + " after " +
         (last->kind == EventKind::kLaunch ? "the launch of " + operation : operation);
}

}  // namespace ddp
