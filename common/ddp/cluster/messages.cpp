#include "ddp/cluster/messages.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace ddp::cluster {

void Messages::reset() {
  for (const MessageEndPtr& end : port_) {
    end->other = nullptr;  // the two hold each other
  }
  channels_.clear();
  port_.clear();
  free_ns_ = 0;
}

Messages::Unmatched& Messages::channel_of(const MessageEnd& end) {
  const int size = options_.world_size;
  const int places = (end.peer - options_.rank + size) % size;
  return channels_[{end.sends ? places : (size - places) % size, end.tag}];
}

MessageEndPtr Messages::launch(MessageEnd end) {
  Unmatched& channel = channel_of(end);
  auto& same = end.sends ? channel.sends : channel.receives;
  auto& opposite = end.sends ? channel.receives : channel.sends;
  auto launched = std::make_shared<MessageEnd>(std::move(end));
  if (launched->sends) {
    port_.push_back(launched);
  }
  same.push_back(launched);
  if (!opposite.empty()) {
    match(launched, opposite.front());
  }
  return launched;
}

void Messages::match(const MessageEndPtr& one, const MessageEndPtr& other) {
  one->other = other;
  other->other = one;
  for (const MessageEndPtr& end : {one, other}) {
    Unmatched& channel = channel_of(*end);
    std::erase(end->sends ? channel.sends : channel.receives, end);
  }
}

void Messages::match_exchange(const MessageEndPtr& end) {
  MessageEnd in_return = *end;
  in_return.sends = !end->sends;
  const Unmatched& channel = channel_of(in_return);
  const auto& candidates = in_return.sends ? channel.sends : channel.receives;
  if (!candidates.empty()) {
    match(end, candidates.front());
  }
}

void Messages::await(const MessageEndPtr& end) {
  settle();
  if (end->end_ns < 0 && end->other == nullptr) {
    match_exchange(end);
    settle();
  }
  if (end->end_ns < 0 && end->other == nullptr && options_.others_in_step) {
    settle_alone(end);
    settle();
  }
  TORCH_CHECK(end->end_ns >= 0, "a ", end->sends ? "send to" : "recv from", " rank ", end->peer,
              " never ends: every rank of the simulated cluster does what rank ", options_.rank,
              " does, and waits here, so nobody ", end->sends ? "receives" : "sends",
              " it; launch both before waiting for either");
}

void Messages::settle() {
  while (!port_.empty() && port_.front()->other != nullptr) {
    const MessageEndPtr sent = port_.front(), received = std::exchange(sent->other, nullptr);
    received->other = nullptr;
    port_.pop_front();
    const std::int64_t begin = std::max({sent->launched_ns, received->launched_ns, free_ns_});
    free_ns_ = begin + options_.cost_ns(std::max(sent->bytes, received->bytes));
    for (const MessageEndPtr& end : {sent, received}) {
      end->begin_ns = begin;
      end->end_ns = free_ns_;
    }
  }
}

void Messages::settle_alone(const MessageEndPtr& end) {
  Unmatched& channel = channel_of(*end);
  std::erase(end->sends ? channel.sends : channel.receives, end);
  std::erase(port_, end);
  end->begin_ns = std::max(end->launched_ns, free_ns_);
  end->end_ns = free_ns_ = end->begin_ns + options_.cost_ns(end->bytes);
}

}  // namespace ddp::cluster
