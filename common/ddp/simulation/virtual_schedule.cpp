#include "ddp/simulation/virtual_schedule.h"

#include <algorithm>
#include <utility>

namespace ddp {

namespace {

constexpr int kSend = static_cast<int>(c10d::OpType::SEND);
constexpr int kRecv = static_cast<int>(c10d::OpType::RECV);
// Marks of a message's end.
constexpr std::int64_t kUnknown = -1;
constexpr std::int64_t kBeingComputed = -2;

}  // namespace

VirtualSchedule::VirtualSchedule(Blackboard& board, int collectives, int messages,
                                 const NetworkModel& network)
    : board_(board),
      collectives_(collectives),
      messages_channel_(messages),
      network_(network),
      messages_(board.world_size()) {}

VirtualInterval VirtualSchedule::collective_time(std::int64_t index) {
  const int world_size = board_.world_size();
  while (static_cast<std::int64_t>(collective_times_.size()) <= index) {
    const auto next = static_cast<std::int64_t>(collective_times_.size());
    std::int64_t start = collective_times_.empty() ? 0 : collective_times_.back().end;
    std::int64_t bytes = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      const OperationRecord& record = board_.wait_for(collectives_, rank, next);
      start = std::max(start, record.time_ns);
      bytes = std::max(bytes, record.bytes);
    }
    const auto op = static_cast<c10d::OpType>(board_.find(collectives_, 0, next)->op);
    collective_times_.push_back({start, start + cost_ns(network_, op, bytes, world_size)});
  }
  return collective_times_[index];
}

// Adds the next message of a rank's list to the indices.
void VirtualSchedule::read_message(int rank, std::int64_t index) {
  Messages& list = messages_[rank];
  const OperationRecord& record = board_.wait_for(messages_channel_, rank, index);
  auto& same = list.by_partner[{record.op, record.peer, record.tag}];
  list.ordinal.push_back(static_cast<std::int64_t>(same.size()));
  same.push_back(index);
  const auto last = list.last_on_port.try_emplace(record.op, -1).first;
  list.previous_on_port.push_back(last->second);
  last->second = index;
  list.time.push_back({0, kUnknown});
}

// The index of a message's other end in the other rank's list: messages between two ranks with the
// same tag are matched in order.
std::int64_t VirtualSchedule::partner_of(int rank, std::int64_t index) {
  const OperationRecord& record = *board_.find(messages_channel_, rank, index);
  const int counterpart = record.op == kSend ? kRecv : kSend;
  Messages& theirs = messages_[record.peer];
  const auto& candidates = theirs.by_partner[{counterpart, rank, record.tag}];
  const auto ordinal = static_cast<std::size_t>(messages_[rank].ordinal[index]);
  while (candidates.size() <= ordinal) {
    read_message(record.peer, static_cast<std::int64_t>(theirs.time.size()));
  }
  return candidates[ordinal];
}

// The message that the port serves before this one. Two messages between the same ranks that the
// two ends launched in opposite orders (with different tags) do not wait for each other: either
// order could make a legal program hang.
std::int64_t VirtualSchedule::previous_on_port(int rank, std::int64_t index) {
  const OperationRecord& record = *board_.find(messages_channel_, rank, index);
  const std::int64_t partner = partner_of(rank, index);
  const auto other_way_round = [&](std::int64_t earlier) {
    const OperationRecord& other = *board_.find(messages_channel_, rank, earlier);
    const int counterpart = other.op == kSend ? kRecv : kSend;
    const auto& theirs = messages_[other.peer].by_partner[{counterpart, rank, other.tag}];
    const auto ordinal = static_cast<std::size_t>(messages_[rank].ordinal[earlier]);
    return other.peer == record.peer && (ordinal >= theirs.size() || theirs[ordinal] > partner);
  };
  std::int64_t previous = messages_[rank].previous_on_port[index];
  while (previous >= 0 && other_way_round(previous)) {
    previous = messages_[rank].previous_on_port[previous];
  }
  return previous;
}

VirtualInterval VirtualSchedule::message_time(int rank, std::int64_t index) {
  while (static_cast<std::int64_t>(messages_[rank].time.size()) <= index) {
    read_message(rank, static_cast<std::int64_t>(messages_[rank].time.size()));
  }
  if (messages_[rank].time[index].end >= 0) {
    return messages_[rank].time[index];
  }
  TORCH_CHECK(messages_[rank].time[index].end != kBeingComputed,
              "the virtual time of the messages of rank ", rank,
              " has no solution: ports serve messages in the order of launch, and these wait for "
              "each other in a circle");
  messages_[rank].time[index].end = kBeingComputed;
  const OperationRecord& record = *board_.find(messages_channel_, rank, index);
  const int peer = record.peer;
  const std::int64_t partner = partner_of(rank, index);
  std::int64_t start =
      std::max(record.time_ns, board_.find(messages_channel_, peer, partner)->time_ns);
  for (const auto& [owner, message] : {std::pair{rank, index}, std::pair{peer, partner}}) {
    const std::int64_t previous = previous_on_port(owner, message);
    if (previous >= 0) {
      start = std::max(start, message_time(owner, previous).end);
    }
  }
  const VirtualInterval time{
      start, start + cost_ns(network_, c10d::OpType::SEND, record.bytes, board_.world_size())};
  messages_[rank].time[index] = time;
  messages_[peer].time[partner] = time;
  return time;
}

}  // namespace ddp
