#include "ddp/referee/completion_hold.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <utility>

#include "ddp/referee/thread_sleep.h"

namespace ddp {

namespace {

// A few polls are not a wait; a polling loop is. No model of the tests has as many gradients.
constexpr int kPollsAllowed = 64;

// The holder waits if this many looks, a millisecond apart, find it in the same sleep. Waiting for
// a lock that a preempted thread holds is far shorter.
constexpr int kLooks = 100;
constexpr auto kBetweenLooks = std::chrono::milliseconds(1);

}  // namespace

void CompletionHold::begin() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!held_, "one hold at a time");
  held_ = true;
  holder_ = this_thread_id();
  if (!helper_) {
    helper_.emplace();
  }
  helper_->submit([this] { watch_holder(); });
}

void CompletionHold::end() {
  const std::lock_guard lock(mutex_);
  awaited_.clear();
  polls_.clear();
  release();
}

void CompletionHold::settle() {
  if (helper_) {
    helper_->drain();
  }
}

void CompletionHold::before_wait(const std::string& operation) {
  Lock lock(mutex_);
  if (held_ && this_thread_id() == holder_) {
    lift(lock, operation + " was waited for inside backward");
  }
  if (held_) {
    awaited_ = operation;
    changed_.wait(lock, [&] { return !held_; });
  }
}

bool CompletionHold::may_answer_poll(const std::string& operation) {
  const Lock lock(mutex_);
  if (held_ && this_thread_id() != holder_) {
    awaited_ = operation;
  } else if (held_ && ++polls_[operation] > kPollsAllowed) {
    lift(lock, operation + " was asked for its completion " + std::to_string(kPollsAllowed) +
                   " times inside backward, which is a way to wait for it");
  }
  return !held_;
}

bool CompletionHold::defer(const std::string& operation, std::function<void()> complete) {
  const std::lock_guard lock(mutex_);
  if (held_) {
    awaited_ = operation;
    deferred_.push_back(std::move(complete));
  }
  return held_;
}

void CompletionHold::watch_holder() {
  Lock lock(mutex_);
  ThreadSleep last;
  int same = 0;
  while (!changed_.wait_for(lock, kBetweenLooks, [&] { return !held_; })) {
    const ThreadSleep now = awaited_.empty() ? ThreadSleep{} : look_at_thread(holder_);
    same = now.asleep && now == last ? same + 1 : 0;
    last = now;
    if (same == kLooks) {
      lift(lock, awaited_ +
                     " was waited for inside backward (by a future, or by another thread "
                     "that backward waited for)");
    }
  }
}

void CompletionHold::lift(const Lock&, const std::string& finding) {
  findings_->add(finding +
                 ": backward stood still until the network was done. Launch in backward; wait in "
                 "finish()");
  release();
}

// Called with the mutex held.
void CompletionHold::release() {
  held_ = false;
  for (std::function<void()>& complete : std::exchange(deferred_, {})) {
    helper_->submit(std::move(complete));
  }
  changed_.notify_all();
}

}  // namespace ddp
