#include <algorithm>

#include "ddp/referee/referee.h"

// Who waits, for whom, and who will never go on.

namespace ddp {

namespace {

using std::chrono::milliseconds;

// A rank waits if it is found in the same sleep so often, and computes without end if it takes so
// much processor time without a word.
constexpr int kLooksInBackward = 50;
constexpr int kLooksAtEnd = 400;
constexpr auto kEndless = milliseconds(3'000);
// What a rank may say in a run; bodies say a tenth of it at most. All of it is kept.
constexpr std::size_t kMostEvents = std::size_t{1} << 20;

}  // namespace

void Referee::look_for_standstill(const std::vector<pid_t>& processes) {
  standstill_.look(processes);
  bool all_still = true;
  bool all_said = true;
  for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
    const Member& member = members_[rank];
    if (member.ended()) {
      continue;
    }
    const int still = standstill_.still(rank);
    if (member.in_backward && still >= kLooksInBackward) {
      const auto held = std::ranges::find(owed_, rank, &Launched::rank);
      if (held != owed_.end()) {
        return lift_hold(rank, seen(*held).operation,
                         "was waited for inside backward (by a future, or by another thread that "
                         "backward waited for)");
      }
    }
    if (standstill_.computing(rank) >= kEndless) {
      hang_ = Hang{rank, "computes without end: nothing was heard of it for " +
                             std::to_string(kEndless.count() / 1'000) + " s of processor time"};
      return;
    }
    all_said = all_said && member.awaited >= 0 && standstill_.single(rank);
    all_still = all_still && still >= kLooksAtEnd;
  }
  if (owed_.empty() && (all_still || all_said)) {
    hang_ = Hang{suspect(), "waits without end: " + who_waits()};
  } else if (Clock::now() - last_news_ >= patience_) {
    hang_ = Hang{suspect(),
                 "nothing was heard of any rank for " + std::to_string(patience_.count()) + " ms"};
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

std::string Referee::who_waits() const {
  std::string text;
  for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
    if (members_[rank].awaited < 0) {
      continue;
    }
    const Seen& launch = evidence_.launch_of(rank, members_[rank].awaited);
    text +=
        (text.empty() ? "" : "; ") + rank_text(rank) + " waits for " + describe_operation(launch);
    const Group& group = groups_[launch.group];
    if (c10d::isP2POp(launch.type)) {
      const bool send = launch.type == c10d::OpType::SEND;
      text += std::string(send ? ", until " : ", from ") + rank_text(group.members[launch.peer]) +
              (send ? " receives it" : "");
      continue;
    }
    const char* separator = ", until ";
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      if (group.waiting[i].empty()) {
        text += separator + rank_text(group.members[i]);
        separator = ", ";
      }
    }
    text += " joins it";
  }
  return text.empty() ? "for nothing that the network could give" : text;
}

std::string Referee::activity(int rank) const {
  const auto& said = evidence_.of[rank];
  const auto last = std::find_if(said.rbegin(), said.rend(), [](const Seen& seen) {
    return seen.home && seen.operation >= 0 &&
           (seen.kind == EventKind::kLaunch || seen.kind == EventKind::kWait ||
            seen.kind == EventKind::kDone);
  });
  if (last == said.rend()) {
    return "runs its own code; no operation launched yet";
  }
  const std::string operation = describe_operation(evidence_.launch_of(rank, last->operation));
  if (last->kind == EventKind::kWait && members_[rank].awaited == last->operation) {
    return "waits for " + operation;
  }
  return "runs its own code after " +
         (last->kind == EventKind::kLaunch ? "the launch of " + operation : operation);
}

}  // namespace ddp
