#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>

namespace ddp {

/// A thread that does jobs, such as to wait for an all-reduce and use its result, one after another.
class Waiter {
 public:
  Waiter() : thread_([this](const std::stop_token& stop) { work(stop); }) {}

  void submit(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push(std::move(job));
      ++open_;
    }
    changed_.notify_all();
  }

  /// Blocks until all is done. Throws what a job has thrown.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
    if (const auto error = std::exchange(error_, nullptr)) {
      std::rethrow_exception(error);
    }
  }

 private:
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !jobs_.empty(); })) {
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop();
      lock.unlock();
      std::exception_ptr error;
      try {
        job();
      } catch (...) {
        error = std::current_exception();
      }
      job = nullptr;  // and what it holds
      lock.lock();
      error_ = error ? error : error_;
      --open_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::queue<std::function<void()>> jobs_;
  int open_ = 0;
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace ddp
