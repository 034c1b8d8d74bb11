// Part of the referee: who waits, for whom, and who will never go on.
#include <algorithm>
#include <utility>

#include "ddp/backends/operation_backend.h"
#include "ddp/referee/patience.h"
#include "ddp/referee/referee.h"

namespace ddp {

// The result that backward of a rank that sleeps may wait for; none if some may still go on.
std::optional<Referee::Launched> Referee::held_up(const std::vector<int>& running) const {
  const auto still = [this](int rank) { return standstill_.of(rank).still; };
  const bool all_still = std::ranges::all_of(
      running, [&](int rank) { return still(rank) >= patience::kLooksInBackward; });
  for (const int rank : running) {
    const auto held = std::ranges::find(owed_, rank, &Launched::rank);
    if (members_[rank].in_backward && still(rank) >= patience::kLooksInBackward &&
        held != owed_.end()) {
      return all_still || still(rank) >= patience::kLooksWhileOthersRun ? std::optional(*held)
                                                                        : std::nullopt;
    }
  }
  return std::nullopt;
}

// Why a rank hangs, whatever the others do; none if it does not.
std::optional<Hang> Referee::hang_of(int rank) const {
  const Standstill::Watched& watched = standstill_.of(rank);
  if (watched.stopped >= patience::kLooksAtStopped) {
    return Hang{rank, "was stopped by a signal (SIGSTOP or SIGTSTP), and nobody lets it go on"};
  }
  if (watched.computing() >= patience::kEndless &&
      standstill_.looks() >= patience::kLooksAtEndless) {
    return Hang{rank, "it called nothing of the lab for " +
                          std::to_string(patience::kEndless.count() / 1'000) +
                          " s of processor time (an endless loop?)"};
  }
  return std::nullopt;
}

void Referee::look_for_standstill(const std::vector<pid_t>& processes) {
  standstill_.look(processes);
  std::vector<int> running;
  for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
    if (!members_[rank].ended()) {
      running.push_back(rank);
    }
  }
  const bool may_hang = patience_ < kNoDeadline;
  for (std::size_t i = 0; may_hang && !hang_ && i < running.size(); ++i) {
    hang_ = hang_of(running[i]);
  }
  if (hang_) {
    return;
  }
  if (const auto launched = held_up(running)) {
    return lift_hold(launched->rank, seen(*launched).operation,
                     "was waited for inside backward (by a future, or by another thread that "
                     "backward waited for)");
  }
  const auto all = [&](const auto& is_so) {
    return std::ranges::all_of(
        running, [&](int rank) { return is_so(members_[rank], standstill_.of(rank)); });
  };
  using Watched = Standstill::Watched;
  const bool stands = all([](const Member&, const Watched& watched) {
    return watched.still >= patience::kLooksAtStandstill ||
           watched.computing() >= patience::kComputes;
  });
  if (stands && owed_.empty() && !std::exchange(told_standstill_, true)) {
    std::ranges::for_each(boxes_, &Mailbox::tell_standstill);
  }
  const bool all_said = all([](const Member& member, const Watched& watched) {
    return member.awaited >= 0 && watched.threads == 1;
  });
  const bool all_still = all(
      [](const Member&, const Watched& watched) { return watched.still >= patience::kLooksAtEnd; });
  const bool none_computes = all([](const Member&, const Watched& watched) {
    return watched.computing() < patience::kComputes;
  });
  if (may_hang && owed_.empty() && (all_still || all_said)) {
    hang_ = Hang{suspect(), "waits forever" + who_waits()};
  } else if (may_hang && none_computes && standstill_.looks() > patience::kLooksAtEnd &&
             Clock::now() - last_news_ >= patience_) {
    hang_ = Hang{suspect(),
                 "nothing was heard of any rank for " + std::to_string(patience_.count()) + " ms"};
  }
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
    return seen.home && seen.operation >= 0 &&
           (seen.kind == EventKind::kLaunch || seen.kind == EventKind::kWait ||
            seen.kind == EventKind::kDone);
  });
  const std::string doing = members_[rank].returned ? "has returned" : "in your code";
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
