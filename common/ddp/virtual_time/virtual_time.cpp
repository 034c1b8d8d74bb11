#include "ddp/virtual_time/virtual_time.h"

#include <algorithm>
#include <utility>

#include "ddp/backends/operation_backend.h"

namespace ddp {

namespace {

// The parts of a step that are drawn around what happens in them.
const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kFinish:
      return "finish";
    default:
      return "";
  }
}

std::string name_of_computing(const Seen& seen) {
  const bool one_of_several = seen.kind == EventKind::kFact && seen.index >= 0;
  return seen.kind == EventKind::kReady ? "backward layer " + std::to_string(seen.index)
         : one_of_several               ? seen.text + " " + std::to_string(seen.index)
                                        : seen.text;
}

std::string name_of_operation(const Seen& launch) {
  const std::string name = operation_name(launch.type);
  return launch.text[0] == '\0' ? name : name + " of " + launch.text;
}

}  // namespace

VirtualTime::VirtualTime(const Evidence& evidence, const NetworkModel& network,
                         const ComputeCost& cost)
    : evidence_(evidence),
      network_(network),
      cost_(cost),
      ranks_(evidence.of.size()),
      messages_(evidence, network) {
  for (std::size_t group = 0; group <= evidence.world.subgroups.size(); ++group) {
    groups_.push_back({members_of(evidence.world, static_cast<int>(group)).size(), {}});
  }
  for (Rank& rank : ranks_) {
    rank.launched_in.resize(groups_.size());
  }
  bool any = true;
  while (any) {
    any = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      while (advance(static_cast<int>(rank))) {
        any = true;
      }
    }
    any = take_times(messages_.settle()) || any;
    any = begin_step() || any;
    any = any || take_times(messages_.overtake());
  }
}

// Does the rank's next event; false if it has to wait for other ranks, or has no more.
bool VirtualTime::advance(int number) {
  Rank& rank = ranks_[number];
  if (rank.at_step || rank.next == evidence_.of[number].size()) {
    return false;
  }
  const Seen& seen = evidence_.of[number][rank.next];
  const bool by_future = seen.kind == EventKind::kAwaited;
  // What other threads do meanwhile may be what it waits for.
  if ((seen.home || by_future) && !end_wait(rank)) {
    return false;
  }
  if (by_future && rank.operations.contains(seen.operation)) {
    rank.awaited = seen.operation;
  }
  if (seen.kind == EventKind::kPhase && seen.place.step != rank.step) {
    enter(rank, Phase::kEnd);
    rank.step = seen.place.step;
    rank.at_step = true;
    return false;
  }
  happen(rank, seen, number);
  rank.times.push_back(rank.clock);
  ++rank.next;
  Step& step = steps_[rank.step];
  step.end = std::max(step.end, rank.clock);
  return true;
}

void VirtualTime::happen(Rank& rank, const Seen& seen, int number) {
  if (seen.kind == EventKind::kPhase) {
    enter(rank, seen.place.phase);
  }
  const std::int64_t begin = rank.clock;
  rank.clock += cost_(seen, number);
  if (rank.clock > begin && seen.kind != EventKind::kPhase) {
    rank.spans.push_back(
        {.name = name_of_computing(seen), .begin_ns = begin, .end_ns = rank.clock});
  }
  if (seen.kind == EventKind::kLaunch) {
    c10d::isP2POp(seen.type) ? launch_message(rank, seen, number) : launch(rank, seen, number);
  } else if (seen.kind == EventKind::kWait) {
    wait(rank, seen);
  }
}

void VirtualTime::wait(Rank& rank, const Seen& seen) {
  if (seen.home) {
    rank.awaited = seen.operation;
  } else if (const auto message = rank.messages.find(seen.operation);
             message != rank.messages.end()) {
    thread_of(rank, seen).awaited.push_back(message->second);
  }
}

// False if the end of what the rank waits for is not known yet.
bool VirtualTime::end_wait(Rank& rank) {
  std::int64_t end = 0;
  if (const auto message = rank.messages.find(rank.awaited); message != rank.messages.end()) {
    end = message->second->end_ns;
  } else if (const auto found = rank.operations.find(rank.awaited);
             found != rank.operations.end()) {
    end = groups_[found->second.first].operations[found->second.second].end;
  }
  if (end < 0) {
    return false;
  }
  rank.clock = std::max(rank.clock, end);
  rank.awaited = -1;
  return true;
}

VirtualTime::Thread& VirtualTime::thread_of(Rank& rank, const Seen& seen) {
  Thread& thread = rank.threads[seen.thread];
  if (thread.step != rank.step) {
    thread = {rank.step, steps_[rank.step].begin, {}};
  }
  return thread;
}

void VirtualTime::launch_message(Rank& rank, const Seen& seen, int number) {
  Thread* const other = seen.home ? nullptr : &thread_of(rank, seen);
  std::int64_t& clock = other != nullptr ? other->clock : rank.clock;
  clock += network_.launch_overhead_ns;
  MessageTime& message = messages_.launch(number, seen, clock);
  rank.messages[seen.operation] = &message;
  if (other != nullptr) {
    message.after.insert(message.after.end(), other->awaited.begin(), other->awaited.end());
  }
}

bool VirtualTime::take_times(const std::vector<const MessageTime*>& settled) {
  for (const MessageTime* message : settled) {
    for (const MessageTime::End& end : message->ends) {
      ranks_[end.rank].spans.push_back({.kind = SpanKind::kCommunication,
                                        .name = name_of_operation(*end.launch),
                                        .begin_ns = message->begin_ns,
                                        .end_ns = message->end_ns,
                                        .launched_ns = end.launched_ns,
                                        .bytes = end.launch->bytes,
                                        .operation = end.launch->operation});
      Step& step = steps_[end.launch->place.step];
      step.end = std::max(step.end, message->end_ns);
    }
  }
  return !settled.empty();
}

// The phase that the rank was in ends, and another one begins.
void VirtualTime::enter(Rank& rank, Phase phase) {
  rank.part.end_ns = rank.clock;
  if (!rank.part.name.empty()) {
    rank.spans.push_back(rank.part);
  }
  rank.part = {.kind = SpanKind::kPhase, .name = name_of(phase), .begin_ns = rank.clock};
}

void VirtualTime::launch(Rank& rank, const Seen& seen, int number) {
  if (network_.launch_overhead_ns > 0) {
    rank.clock += network_.launch_overhead_ns;
    rank.spans.push_back({.name = "launch",
                          .begin_ns = rank.clock - network_.launch_overhead_ns,
                          .end_ns = rank.clock});
  }
  Group& group = groups_[seen.group];
  const std::size_t index = rank.launched_in[seen.group]++;
  rank.operations[seen.operation] = {seen.group, index};
  group.operations.resize(std::max(group.operations.size(), index + 1));
  Operation& operation = group.operations[index];
  operation.launched = std::max(operation.launched, rank.clock);
  operation.bytes = std::max(operation.bytes, seen.bytes);
  operation.step = std::max(operation.step, rank.step);
  operation.launches.emplace_back(number, Span{.kind = SpanKind::kCommunication,
                                               .name = name_of_operation(seen),
                                               .launched_ns = rank.clock,
                                               .bytes = seen.bytes,
                                               .operation = seen.operation});
  if (operation.launches.size() < group.size) {
    return;
  }
  const std::int64_t before = index == 0 ? 0 : group.operations[index - 1].end;
  operation.end = std::max(operation.launched, before) +
                  cost_ns(network_, seen.type, operation.bytes, static_cast<int>(group.size));
  for (auto& [member, span] : operation.launches) {
    span.begin_ns = std::max(operation.launched, before);
    span.end_ns = operation.end;
    ranks_[member].spans.push_back(std::move(span));
  }
  Step& step = steps_[operation.step];
  step.end = std::max(step.end, operation.end);
}

// Once all ranks are at a step's beginning, or have ended.
bool VirtualTime::begin_step() {
  std::int64_t begin = 0;
  bool some = false;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    const Rank& rank = ranks_[number];
    if (!rank.at_step && rank.next < evidence_.of[number].size()) {
      return false;
    }
    some = some || rank.at_step;
    begin = std::max(begin, rank.clock);
  }
  for (const auto& [number, step] : steps_) {
    begin = std::max(begin, step.end);
  }
  for (Rank& rank : ranks_) {
    if (rank.at_step) {
      rank.clock = begin;
      rank.at_step = false;
      steps_[rank.step] = {begin, begin};
    }
  }
  return some;
}

}  // namespace ddp
