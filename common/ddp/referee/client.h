#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ddp/backends/tensor_names.h"
#include "ddp/backends/worker_queue.h"
#include "ddp/launching/process_group.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/recorder.h"

namespace ddp {

/// The fact that somebody has taken an operation's future: its number.
constexpr const char* kTookFuture = "took a future";

/// What an operation that World::failure names says.
constexpr const char* kConnectionLost =
    "connection lost (this scenario lets communication fail once)";

class ClientWork;

/// A rank's side of a refereed world. An operation's tensors are copied to the referee at launch,
/// and their memory is poisoned; the result comes back when the caller learns that the operation is
/// complete, see ClientWork. What touches the tensors in between is told the referee.
///
/// Groups and handles may be used on any thread, and keep it alive.
class Client : public Recorder, public AccessListener, public std::enable_shared_from_this<Client> {
 public:
  Client(World world, int rank, Mailbox mailbox);
  ~Client() override;

  /// From now on messages use these names for the tensors.
  void name(const std::vector<NamedTensor>& tensors) { names_.add(tensors); }

  /// As messages name it: "buffer 4".
  std::string name_of(const at::Tensor& tensor) const { return names_.of(tensor, is_home()); }

  /// Looks whether a buffer in flight has changed. Operations of ATen are noticed without it.
  void look_at_buffers();

  /// Whether the operation that World::failure names has been launched.
  bool has_failed() const { return has_failed_; }

  /// How many operations have been launched.
  std::int64_t launches() const { return operations(); }

  /// Waits until the futures of all that is complete have run their callbacks, and nobody but the scenario
  /// holds what they held: before memory and handles are counted.
  void settle();

  /// Handles that exist, waited for or not.
  std::int64_t live_handles() const { return live_handles_; }

  /// For make_group(): `launch` says what the operation is, and lacks its number and names.
  WorkPtr start(Operation operation, Event launch);

  void note_access(const at::Tensor& tensor, bool writes, const char* operator_name) override;

 private:
  friend class ClientWork;
  using WorkList = std::vector<c10::intrusive_ptr<ClientWork>>;

  /// Nobody needs to look at the operation's buffers any more.
  void forget(const ClientWork& work);
  /// Delivers to the future on another thread, which does the works of one `key` in the order of their
  /// launches, unless the result has been delivered by then.
  void deliver_later(std::int64_t operation, const QueueKey& key);
  /// Calls `complete` on the same thread once this one sleeps.
  void complete_later(const QueueKey& key, std::function<void()> complete);

  bool fails_now();
  void note_start(const Operation& operation, const Event& launch);
  void remember(const c10::intrusive_ptr<ClientWork>& work);
  void touch_on_purpose() override;
  std::string describe_in_flight() const override;

  /// Null if its result has been delivered.
  c10::intrusive_ptr<ClientWork> in_flight(std::int64_t operation) const;
  void deliver(std::int64_t operation);
  WorkList in_flight_at(const at::Tensor& tensor) const;

  TensorNames names_;
  std::atomic<std::int64_t> live_handles_{0};
  std::atomic<std::int32_t> launches_before_failure_{0};  // in its step
  std::atomic<bool> has_failed_{false};

  mutable std::mutex flight_mutex_;  // guards all below
  WorkList in_flight_;
  // Their tensors' memory, by its beginning: the end and the operation. Buffers may overlap, as those of
  // an all-gather in place do.
  std::multimap<std::uintptr_t, std::pair<std::uintptr_t, ClientWork*>> in_flight_at_;
  std::uintptr_t longest_in_flight_ = 0;        // there, so far
  std::map<QueueKey, WorkerQueue> deliveries_;  // of futures
};

/// A new process group of a rank, for the world's group `index`, of which it must be a member. Every
/// operation becomes an event and bytes for the referee. Throws c10::Error for an operation on a
/// tensor that is not dense, and for a receive from any rank.
ProcessGroupPtr make_group(const std::shared_ptr<Client>& client, GroupIndex index = 0);

}  // namespace ddp
