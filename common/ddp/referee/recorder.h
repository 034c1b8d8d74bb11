#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "ddp/referee/mailbox.h"
#include "ddp/referee/world.h"

namespace ddp {

/// A few polls of an operation in backward, before the next gradient is ready, are no wait; a polling
/// loop is.
constexpr int kPollsAllowed = 16;

/// A rank's evidence: what happens in it, as it happens. It only reports events.
///
/// Any thread may call all functions, but only the one that runs the scenario goes from place to place.
class Recorder {
 public:
  Recorder(World world, int rank, Mailbox mailbox)
      : world_(std::move(world)), rank_(rank), mailbox_(mailbox) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  virtual ~Recorder() = default;

  int rank() const { return rank_; }
  const World& world() const { return world_; }

  Place place() const;
  void go_to(const Place& place);
  /// The thread that runs the scenario is this one now.
  void come_home();

  /// Backward has computed a gradient.
  void ready(std::int64_t gradient);
  void compute(std::int64_t ns, const std::string& layer);
  void value(const std::string& name, const at::Tensor& tensor, std::int64_t index = -1);
  void fact(const std::string& name, std::int64_t number, std::int64_t index = -1);
  void threw(const std::string& call, const std::string& exception);

  // Of operations.
  /// Whether the schedule chooses the other order for one; if so, says `text`.
  bool chooses(Choice choice, std::int64_t operation, const std::string& text);
  /// Lets the rank's other threads go first, if the schedule wants it.
  void give_way(std::int64_t operation);
  /// Blocks until a thread sleeps or has ended, the same moment in every run: waiting for the network,
  /// or being slow, is no sleep. Gives up when a thread has run, or the network has kept it, for long,
  /// or when `in_vain()`.
  bool await_rest(int thread, const std::function<bool()>& in_vain) const;
  void say(EventKind kind, std::int64_t operation, const std::string& text = "",
           const std::string& detail = "");
  /// Says that an operation is launched: `fill` writes its inputs to the arena. Returns the event
  /// with their place there, which is the operation's until release().
  Event launch(Event event, const std::function<void(char*)>& fill);
  void release();
  /// Where the result of an operation is, after its inputs have been taken.
  char* bytes_of(const Event& launch) const { return mailbox_.bytes(launch.offset); }
  Answer answer(std::int64_t operation) const { return mailbox_.answer(operation); }
  Answer await(std::int64_t operation,
               std::chrono::milliseconds limit = std::chrono::hours(24)) const;
  bool is_home() const;
  std::string refusal() const { return mailbox_.refusal(); }

 private:
  /// While it lives, the calling thread waits for the referee.
  class Asking {
   public:
    explicit Asking(const Recorder& recorder);
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;
    ~Asking();

   private:
    const Recorder& recorder_;
    const int thread_;
  };

  void post(Event event);
  bool asks(int thread) const;
  std::int64_t reserve(std::int64_t bytes);

  const World world_;
  const int rank_;
  mutable std::mutex mutex_;  // guards all below
  Mailbox mailbox_;
  Place place_;
  std::thread::id home_ = std::this_thread::get_id();
  std::int64_t used_ = 0;  // bytes of the arena
  int launched_ = 0;       // operations that have a place there
  std::set<int> threads_;  // the kernel's ids of those that have launched or waited

  mutable std::mutex asking_mutex_;
  mutable std::multiset<int> asking_;  // threads that wait for the referee
};

}  // namespace ddp
