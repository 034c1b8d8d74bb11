#include <thread>

#include "ddp/referee/thread_sleep.h"
#include "ddp/referee/witness.h"

// Who goes first in a rank, where the schedule decides it.

namespace ddp {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kMoment = microseconds(300);
// A thread that asks a future in a loop never sleeps: after so much processor time it has waited.
constexpr auto kPollingPatience = milliseconds(200);
// What a thread waits for in the network may itself depend on who waits for that thread.
constexpr auto kNetworkPatience = milliseconds(200);
// The same among threads, where backward keeps one of them in the network for long.
constexpr auto kThreadPatience = milliseconds(5);
// In long runs more than these show nothing new, and each costs that patience.
constexpr std::int64_t kThreadOperations = 40;

// True if the thread is asleep and stays so for a moment, or has ended.
bool is_asleep(int thread) {
  const ThreadSleep before = look_at_thread(thread);
  std::this_thread::sleep_for(kMoment);
  return !time_of_thread(thread) || (before.asleep && before == look_at_thread(thread));
}

}  // namespace

bool Witness::chooses(Choice choice, std::int64_t operation, const std::string& text) {
  const bool other = world_.schedule.other(choice, rank_, operation);
  if (other) {
    say(EventKind::kChoice, operation, text);
  }
  return other;
}

bool Witness::await_rest(int thread, const std::function<bool()>& in_vain) const {
  const auto begin = time_of_thread(thread);
  auto in_network_since = std::chrono::steady_clock::now();
  while (!in_vain()) {
    const bool asked = asks(thread);
    const bool asleep = is_asleep(thread);
    const auto now = std::chrono::steady_clock::now();
    if (asked || asks(thread)) {
      if (now - in_network_since > kNetworkPatience) {
        return false;
      }
      continue;
    }
    in_network_since = now;
    const auto time = time_of_thread(thread);
    if (asleep || !begin || !time || *time - *begin > kPollingPatience) {
      return true;
    }
  }
  return false;
}

// Threads that are in the network stay there for as long as other ranks want; all else is known.
void Witness::give_way(std::int64_t operation) {
  std::set<int> others;
  {
    const std::lock_guard lock(mutex_);
    others = threads_;
    others.erase(this_thread_id());
  }
  if (others.empty() || operation >= kThreadOperations ||
      !chooses(Choice::kThread, operation, "the rank's other threads went on before this one")) {
    return;
  }
  const Asking asking(*this);
  const auto begin = std::chrono::steady_clock::now();
  for (const int thread : others) {
    while (!is_asleep(thread) && std::chrono::steady_clock::now() - begin < kThreadPatience) {
    }
  }
}

}  // namespace ddp
