#include "ddp/cluster/clocks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace ddp::cluster {

void Clocks::reset() { *this = Clocks(costs_); }

Interval Clocks::compute(std::int64_t ns, const HostWork& host) {
  host_ += std::max(costs_.launch_ns, host.ns);
  const std::int64_t begin = now();
  compute_ = end_of_computing(begin, ns, host.kernels);
  queue_.push_back({host.kernels, compute_});
  queued_ += host.kernels;
  while (costs_.launch_queue > 0 && queued_ > costs_.launch_queue) {
    host_ = std::max(host_, queue_.front().end);
    queued_ -= queue_.front().kernels;
    queue_.pop_front();
  }
  return {begin, compute_};
}

// No collective that is launched later can run beside it: that would wait for the compute stream.
std::int64_t Clocks::end_of_computing(std::int64_t begin, std::int64_t ns, std::int64_t kernels) {
  if (ns == 0) {
    return begin;
  }
  while (first_running_ < collectives_.size() && collectives_[first_running_].end <= begin) {
    ++first_running_;
  }
  const double slowdown = costs_.slowdown_beside_communication +
                          static_cast<double>(kernels * costs_.kernel_ns_beside_communication) /
                              static_cast<double>(ns);
  const double its_slowdown = costs_.slowdown_beside_computing;
  std::int64_t now = begin, left = ns;
  for (std::size_t i = first_running_; i < collectives_.size(); ++i) {
    const std::int64_t alone = std::max<std::int64_t>(collectives_[i].begin - now, 0);
    if (left <= alone) {
      break;
    }
    left -= alone;
    now += alone;
    const std::int64_t stretched = std::llround(static_cast<double>(left) * slowdown);
    const std::int64_t it_has_left = collectives_[i].end - now;
    const std::int64_t beside = std::llround(static_cast<double>(it_has_left) * its_slowdown);
    if (stretched <= beside) {
      const std::int64_t it_did = std::llround(static_cast<double>(stretched) / its_slowdown);
      delay(i, now + stretched + it_has_left - it_did);
      return now + stretched;
    }
    delay(i, now + beside);
    left -= std::llround(static_cast<double>(beside) / slowdown);
    now += beside;
  }
  return now + left;
}

// Those after it follow.
void Clocks::delay(std::size_t collective, std::int64_t end) {
  collectives_[collective].end = end;
  for (std::size_t i = collective + 1; i < collectives_.size(); ++i) {
    Collective& next = collectives_[i];
    const std::int64_t begin = std::max(next.ready, collectives_[i - 1].end);
    if (begin == next.begin) {
      return;
    }
    next.begin = begin;
    next.end = begin + next.ns;
  }
}

std::int64_t Clocks::true_end(std::int64_t expected) const {
  const auto found = std::ranges::lower_bound(collectives_, expected, {}, &Collective::expected);
  return found != collectives_.end() && found->expected == expected ? found->end : expected;
}

std::int64_t Clocks::launch() {
  host_ += costs_.launch_ns;
  if (costs_.collective_launch_ns > 0) {
    host_ = now() + costs_.collective_launch_ns;
  }
  return now();
}

Interval Clocks::communicate(std::int64_t ready, std::int64_t ns) {
  const std::int64_t begin = std::max(ready, communication());
  const std::int64_t end = begin + ns;
  if (ns > 0) {
    collectives_.push_back({.ready = ready, .ns = ns, .expected = end, .begin = begin, .end = end});
  }
  return {begin, end};
}

void Clocks::wait_until(std::int64_t end) {
  if (costs_.wait_blocks_host) {
    poll_until(end);
    return;
  }
  end = true_end(end);
  waited_ += std::max<std::int64_t>(end - now(), 0);
  compute_ = std::max(compute_, end);
}

void Clocks::poll_until(std::int64_t end) {
  end = true_end(end);
  waited_ += std::max<std::int64_t>(end - now(), 0);
  host_ = std::max(host_, end);
}

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
