#include "ddp/virtual_time/message_times.h"

#include <algorithm>
#include <limits>

namespace ddp {

namespace {

constexpr int kSender = 0;
constexpr int kReceiver = 1;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

}  // namespace

MessageTimes::MessageTimes(const Evidence& evidence, const NetworkModel& network)
    : world_(evidence.world), network_(network), ports_(evidence.of.size()) {}

MessageTime& MessageTimes::launch(int rank, const Seen& launch, std::int64_t now_ns) {
  const int side = launch.type == c10d::OpType::SEND ? kSender : kReceiver;
  const int peer = members_of(world_, launch.group).at(launch.peer);
  const int from = side == kSender ? rank : peer;
  const int to = side == kSender ? peer : rank;
  Channel& channel = channels_[{launch.group, from, to, launch.tag}];
  const std::size_t index = channel.launched[side]++;
  if (index == channel.messages.size()) {
    channel.messages.push_back(&messages_.emplace_back());
  }
  MessageTime& message = *channel.messages[index];
  auto& port = ports_[rank][side];
  message.ends[side] = {rank, &launch, now_ns, port.size()};
  message.ends[1 - side].rank = peer;
  port.push_back(&message);
  if (message.ends[1 - side].launch != nullptr) {
    pending_.push_back(&message);
  }
  return message;
}

std::vector<const MessageTime*> MessageTimes::settle() {
  std::vector<const MessageTime*> settled;
  for (bool any = true; any;) {
    any = std::erase_if(pending_, [&](MessageTime* message) {
            const bool is_settled = settle(*message);
            if (is_settled) {
              settled.push_back(message);
            }
            return is_settled;
          }) > 0;
  }
  return settled;
}

std::vector<const MessageTime*> MessageTimes::overtake() {
  const auto order = [this](const MessageTime* message) {
    const MessageTime::End& sender = message->ends[kSender];  // ties, in whichever order they came
    return std::tuple(earliest_begin(*message), sender.rank, sender.turn);
  };
  const auto first = std::ranges::min_element(pending_, {}, order);
  if (first == pending_.end() || earliest_begin(**first) == kNever) {
    return {};
  }
  for (const int side : {kSender, kReceiver}) {
    move_up(**first, side);
  }
  return settle();
}

// When it could begin if it were the next on both its ports.
std::int64_t MessageTimes::earliest_begin(const MessageTime& message) const {
  std::int64_t begin = 0;
  for (const MessageTime* earlier : message.after) {
    begin = std::max(begin, earlier->end_ns < 0 ? kNever : earlier->end_ns);
  }
  for (const int side : {kSender, kReceiver}) {
    const MessageTime::End& end = message.ends[side];
    begin = std::max(begin, end.launched_ns);
    for (const MessageTime* other : ports_[end.rank][side]) {
      begin = std::max(begin, other->end_ns);
    }
  }
  return begin;
}

// Before all on its port that have no time yet.
void MessageTimes::move_up(MessageTime& message, int side) {
  auto& port = ports_[message.ends[side].rank][side];
  const auto from =
      std::ranges::find_if(port, [](const MessageTime* other) { return other->end_ns < 0; });
  std::rotate(from, std::ranges::find(port, &message), std::ranges::find(port, &message) + 1);
  for (std::size_t turn = 0; turn < port.size(); ++turn) {
    port[turn]->ends[side].turn = turn;
  }
}

// False if it waits for one whose time is unknown.
bool MessageTimes::settle(MessageTime& message) const {
  std::int64_t begin = 0;
  std::vector<const MessageTime*> after = message.after;
  for (const int side : {kSender, kReceiver}) {
    begin = std::max(begin, message.ends[side].launched_ns);
    if (const MessageTime* earlier = before(message, side)) {
      after.push_back(earlier);
    }
  }
  for (const MessageTime* earlier : after) {
    if (earlier->end_ns < 0) {
      return false;
    }
    begin = std::max(begin, earlier->end_ns);
  }
  message.begin_ns = begin;
  message.end_ns = begin + cost_ns(network_, c10d::OpType::SEND,
                                   message.ends[kSender].launch->bytes, world_.ranks);
  return true;
}

// The message that the port of one end serves before this one; null if there is none.
const MessageTime* MessageTimes::before(const MessageTime& message, int side) const {
  const MessageTime::End& here = message.ends[side];
  const MessageTime::End& there = message.ends[1 - side];
  const auto& port = ports_[here.rank][side];
  for (std::size_t turn = here.turn; turn-- > 0;) {
    const MessageTime::End& other = port[turn]->ends[1 - side];
    const bool later_there = other.launch == nullptr || other.turn > there.turn;
    if (other.rank != there.rank || !later_there) {
      return port[turn];
    }
  }
  return nullptr;
}

}  // namespace ddp
