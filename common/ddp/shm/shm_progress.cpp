#include "ddp/shm/shm_progress.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;

// What another core does meanwhile often takes less than a sleep, which costs two switches.
constexpr auto kSpinTime = std::chrono::microseconds(30);
constexpr auto kNoTime = std::chrono::nanoseconds(0);
constexpr int kGlancesPerTime = 32;  // between looks at the clock
// After so long without news one looks whether the others still live.
constexpr auto kNap = std::chrono::milliseconds(100);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Without a core for each rank, one that spins keeps another from what it waits for.
std::chrono::nanoseconds spin_time(std::size_t ranks) {
  return std::thread::hardware_concurrency() >= ranks ? kSpinTime : kNoTime;
}

std::exception_ptr error(const std::string& text) {
  return std::make_exception_ptr(c10::Error({__func__, __FILE__, __LINE__}, text));
}

}  // namespace

ShmWork::ShmWork(const Operation& operation, std::unique_ptr<Transfer> transfer,
                 ShmProgress& progress)
    : Work(-1, operation.type),
      inputs_(operation.inputs),
      outputs_(operation.outputs),
      transfer_(std::move(transfer)),
      progress_(progress) {}

bool ShmWork::isCompleted() {
  if (!ended_) {
    getFuture();  // whoever asks again and again, and never waits, gets there as well
  }
  return ended_;
}

bool ShmWork::wait(std::chrono::milliseconds timeout) {
  if (!ended_) {
    progress_.wait(*this, timeout);
  }
  if (exception()) {
    std::rethrow_exception(exception());
  }
  return true;
}

FuturePtr ShmWork::getFuture() { return progress_.future_of(*this); }

void ShmWork::end(std::exception_ptr error) {
  finish(std::move(error));
  ended_ = true;
}

void ShmWork::complete_future() {
  if (exception()) {
    future_->setError(exception());
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

ShmProgress::ShmProgress(SharedMemory& memory, std::chrono::milliseconds timeout)
    : memory_(memory),
      timeout_(timeout),
      spin_time_(spin_time(memory.members().size())),
      thread_([this] { work(); }) {}

ShmProgress::~ShmProgress() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  memory_.bell().ring();
  thread_.join();
}

void ShmProgress::launch(const QueueKey& key, const ShmWorkPtr& work) {
  Works ended;
  bool calls_thread = false;
  {
    const std::lock_guard lock(mutex_);
    std::deque<ShmWorkPtr>& queue = queues_[key];
    queue.push_back(work);
    advance(ended);
    // One that is not the first has not moved at all.
    calls_thread =
        !work->ended_ && !looked_after_ && (queue.front() != work || work->transfer_->owes());
    looked_after_ |= calls_thread;
  }
  complete_futures(ended);
  if (calls_thread) {
    changed_.notify_one();
  }
}

void ShmProgress::wait(ShmWork& work, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + (timeout == kNoTimeout ? timeout_ : timeout);
  Lock lock(mutex_);
  ++waiting_;
  while (!work.ended_ && Clock::now() < deadline) {
    step(lock, spin_time_);
  }
  const bool calls_thread = --waiting_ == 0 && looked_after_;
  lock.unlock();
  if (calls_thread) {
    changed_.notify_one();
  }
  TORCH_CHECK(work.ended_, "rank ", memory_.rank(), " has waited too long for its ",
              operation_name(work.retrieveOpType()), " through shared memory");
}

FuturePtr ShmProgress::future_of(ShmWork& work) {
  const std::lock_guard lock(mutex_);
  if (!work.future_) {
    work.future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    if (work.ended_) {
      work.complete_future();  // it has no callbacks yet
    } else {
      looked_after_ = true;
      changed_.notify_one();
    }
  }
  return work.future_;
}

// Moves the first of each queue on. True if anything has moved. `ended` gets those whose futures are
// to be completed, which calls back, and so must be done without the lock.
bool ShmProgress::advance(Works& ended) {
  bool moved = false;
  for (auto& [key, queue] : queues_) {
    while (!queue.empty()) {
      ShmWork& work = *queue.front();
      try {
        moved |= !work.ended_ && work.transfer_->advance();
        if (work.transfer_->done()) {
          work.end(nullptr);
        }
      } catch (...) {
        work.end(std::current_exception());
      }
      if (!work.ended_) {
        break;
      }
      moved = true;
      if (work.future_) {
        ended.push_back(queue.front());
      }
      queue.pop_front();
    }
  }
  return moved;
}

void ShmProgress::complete_futures(const Works& ended) {
  for (const ShmWorkPtr& work : ended) {
    work->complete_future();
  }
}

void ShmProgress::step(Lock& lock, std::chrono::nanoseconds spin_time) {
  const std::uint32_t seen = memory_.bell().rings();
  Works ended;
  const bool moved = advance(ended);
  lock.unlock();
  complete_futures(ended);
  const bool silent = !moved && doze(seen, spin_time);
  lock.lock();
  if (silent) {
    fail_what_waits_for_the_dead();
  }
}

// Returns at the next ring, at the latest after a nap. True if there was none.
bool ShmProgress::doze(std::uint32_t seen, std::chrono::nanoseconds spin_time) const {
  Bell& bell = memory_.bell();
  for (const auto end = Clock::now() + spin_time; bell.rings() == seen && Clock::now() < end;) {
    for (int glance = 0; glance < kGlancesPerTime && bell.rings() == seen; ++glance) {
      relax();
    }
  }
  if (bell.rings() == seen) {
    bell.sleep(seen, kNap);
  }
  return bell.rings() == seen;
}

// A rank that has ended does not ring: what it launched before the silence has been moved.
void ShmProgress::fail_what_waits_for_the_dead() {
  const std::uint32_t seen = memory_.bell().rings();
  for (int rank = 0; rank < static_cast<int>(memory_.members().size()); ++rank) {
    if (!memory_.has_ended(rank) || memory_.bell().rings() != seen) {
      continue;
    }
    for (auto& [key, queue] : queues_) {
      if (!queue.empty() && !queue.front()->ended_ && queue.front()->transfer_->waits_for(rank)) {
        const auto what = operation_name(queue.front()->retrieveOpType());
        queue.front()->end(error("rank " + std::to_string(rank) + " has ended, and rank " +
                                 std::to_string(memory_.rank()) + "'s " + what + " needs it"));
      }
    }
  }
}

void ShmProgress::work() {
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || (looked_after_ && waiting_ == 0); });
    if (closing_) {
      return;
    }
    step(lock, kNoTime);
    looked_after_ =
        std::ranges::any_of(queues_, [](const auto& one) { return !one.second.empty(); });
  }
}

}  // namespace ddp
