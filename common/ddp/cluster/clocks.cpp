#include "ddp/cluster/clocks.h"

#include <algorithm>
#include <cmath>

namespace ddp::cluster {

void Clocks::reset() { *this = Clocks(costs_); }

Interval Clocks::compute(std::int64_t ns) {
  host_ += costs_.launch_ns;
  const std::int64_t begin = now();
  compute_ = end_of_computing(begin, ns);
  return {begin, compute_};
}

// No collective that is launched later can run beside it: that would wait for the compute stream.
std::int64_t Clocks::end_of_computing(std::int64_t begin, std::int64_t ns) {
  while (first_running_ < collectives_.size() && collectives_[first_running_].end <= begin) {
    ++first_running_;
  }
  const double slowdown = costs_.slowdown_beside_communication;
  std::int64_t now = begin, left = ns;
  for (std::size_t i = first_running_; i < collectives_.size(); ++i) {
    const std::int64_t alone = std::max<std::int64_t>(collectives_[i].begin - now, 0);
    if (left <= alone) {
      break;
    }
    left -= alone;
    now += alone;
    const std::int64_t stretched = std::llround(static_cast<double>(left) * slowdown);
    const std::int64_t beside = collectives_[i].end - now;
    if (stretched <= beside) {
      return now + stretched;
    }
    left -= std::llround(static_cast<double>(beside) / slowdown);
    now += beside;
  }
  return now + left;
}

std::int64_t Clocks::launch() {
  host_ += costs_.launch_ns;
  return now();
}

Interval Clocks::communicate(std::int64_t ready, std::int64_t ns) {
  const std::int64_t begin = std::max(ready, communication_);
  communication_ = begin + ns;
  if (ns > 0) {
    collectives_.push_back({begin, communication_});
  }
  return {begin, communication_};
}

void Clocks::wait_until(std::int64_t end) {
  if (costs_.wait_blocks_host) {
    poll_until(end);
    return;
  }
  waited_ += std::max<std::int64_t>(end - now(), 0);
  compute_ = std::max(compute_, end);
}

void Clocks::poll_until(std::int64_t end) {
  waited_ += std::max<std::int64_t>(end - now(), 0);
  host_ = std::max(host_, end);
}

}  // namespace ddp::cluster
