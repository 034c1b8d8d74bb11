#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ddp/backends/worker_queue.h"
#include "ddp/shm/transfers.h"

namespace ddp {

class ShmProgress;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/// The handle of a transfer. Before it is complete it must not outlive its backend.
class ShmWork final : public c10d::Work {
 public:
  ShmWork(const Operation& operation, std::unique_ptr<Transfer> transfer, ShmProgress& progress);

  bool isCompleted() override;
  /// Blocks for at most `timeout`; kNoTimeout: as long as the backend's. Throws c10::Error after
  /// that, or if a rank that is needed has ended.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  FuturePtr getFuture() override;

 private:
  friend class ShmProgress;

  void end(std::exception_ptr error);
  void complete_future();

  const std::vector<at::Tensor> inputs_, outputs_;  // kept alive
  const std::unique_ptr<Transfer> transfer_;
  ShmProgress& progress_;
  std::atomic<bool> ended_ = false;
  FuturePtr future_;  // null until it is asked for; ShmProgress's lock guards it
};
using ShmWorkPtr = c10::intrusive_ptr<ShmWork>;

/// Moves a rank's transfers on. Whoever waits for one does it himself, without a switch of threads.
/// A thread does it while nobody waits, but only if others may depend on it: see Transfer::owes().
/// Transfers with the same key run one after the other.
class ShmProgress {
 public:
  ShmProgress(SharedMemory& memory, std::chrono::milliseconds timeout);
  ShmProgress(const ShmProgress&) = delete;
  ShmProgress& operator=(const ShmProgress&) = delete;
  ~ShmProgress();

  void launch(const QueueKey& key, const ShmWorkPtr& work);
  void wait(ShmWork& work, std::chrono::milliseconds timeout);
  /// The work's future, which completes even if nobody waits.
  FuturePtr future_of(ShmWork& work);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Works = std::vector<ShmWorkPtr>;

  bool advance(Works& ended);
  static void complete_futures(const Works& ended);
  void step(Lock& lock, std::chrono::nanoseconds spin_time);
  bool doze(std::uint32_t seen, std::chrono::nanoseconds spin_time) const;
  void fail_what_waits_for_the_dead();
  void work();

  SharedMemory& memory_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::nanoseconds spin_time_;  // of those who wait
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<QueueKey, std::deque<ShmWorkPtr>> queues_;
  bool looked_after_ = false;  // by the thread, until the queues are empty
  bool closing_ = false;
  int waiting_ = 0;     // threads in wait()
  std::thread thread_;  // last: it uses the others
};

}  // namespace ddp
