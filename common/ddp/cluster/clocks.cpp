#include "ddp/cluster/clocks.h"

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

}  // namespace ddp::cluster
