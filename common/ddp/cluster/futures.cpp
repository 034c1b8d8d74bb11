#include "ddp/cluster/futures.h"

#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "ddp/referee/standstill.h"

namespace ddp::cluster {

namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Between two looks at a thread. If they are equal, it has slept all the while.
constexpr std::chrono::microseconds kBetweenLooks{20};

}  // namespace

// Shared with the thread that completes: what a callback drops last may be the owner of all this.
struct Futures::State {
  struct Pending {
    FuturePtr future;
    c10::IValue result;
  };

  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  Listener listener;
  std::multimap<std::int64_t, Pending> pending;  // by end

  // Completes the first, unless that ends later.
  bool complete_first(std::int64_t latest_ns, bool tells) {
    std::unique_lock lock(mutex);
    if (pending.empty() || pending.begin()->first > latest_ns) {
      return false;
    }
    const auto [end_ns, first] = *pending.begin();
    pending.erase(pending.begin());
    if (tells && listener) {
      listener(end_ns);
    }
    lock.unlock();  // callbacks may make futures
    first.future->markCompleted(first.result);
    return true;
  }
};

Futures::Futures(Listener listener)
    : state_(std::make_shared<State>()), sleeper_(this_thread_id()) {
  state_->listener = std::move(listener);
}

Futures::~Futures() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    state_->listener = nullptr;
    state_->changed.notify_all();
  }
  if (server_.get_id() == std::this_thread::get_id()) {
    server_.detach();  // a callback dropped the last owner: its thread cannot wait for itself
  } else if (server_.joinable()) {
    server_.join();
  }
}

FuturePtr Futures::make(const std::vector<at::Tensor>& result, std::int64_t end_ns) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  const std::lock_guard lock(state_->mutex);
  state_->pending.emplace(end_ns, State::Pending{future, result});
  state_->changed.notify_all();
  if (!server_.joinable()) {
    server_ = std::thread(serve, state_, sleeper_);
  }
  return future;
}

void Futures::complete_until(std::int64_t end_ns) {
  while (state_->complete_first(end_ns, /*tells=*/false)) {
  }
}

void Futures::serve(const std::shared_ptr<State>& state, int sleeper) {
  while (true) {
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->ended || !state->pending.empty(); });
      if (state->ended) {
        return;
      }
    }
    const ThreadSleep look = look_at_thread(sleeper);
    std::this_thread::sleep_for(kBetweenLooks);
    if (look.asleep && look == look_at_thread(sleeper)) {
      state->complete_first(std::numeric_limits<std::int64_t>::max(), /*tells=*/true);
    }
  }
}

}  // namespace ddp::cluster
