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
/// Code under test runs in the same process. So that it cannot divert what is reported, a rank's number,
/// world and mailbox lie in a page that nobody can write, and not in this object; and whoever goes to
/// another place goes on when the referee has taken all that happened before.
///
/// Any thread may call all functions, but only the one that runs the scenario goes from place to place.
class Recorder {
 public:
  /// Once in a process. Throws c10::Error the second time.
  Recorder(World world, int rank, Mailbox mailbox);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  virtual ~Recorder() = default;

  static int rank();
  static const World& world();

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
  /// Blocks until a thread sleeps or has ended, the same moment in every run: waiting for the network,
  /// or being slow, is no sleep; to ask a future in a loop is. Gives up when the thread waits for the
  /// network and all ranks stand still, or when `in_vain()`.
  bool await_rest(int thread, const std::function<bool()>& in_vain) const;
  void say(EventKind kind, std::int64_t operation, const std::string& text = "",
           const std::string& detail = "");
  /// Says that an operation is launched: `fill` writes its inputs to the arena. Returns the event
  /// with their place there, which is the operation's until release().
  Event launch(Event event, const std::function<void(char*)>& fill);
  void release();
  /// A number for an operation, and how many there have been.
  static std::int64_t number_operation();
  static std::int64_t operations();
  /// Where the result of an operation is, after its inputs have been taken.
  static char* bytes_of(const Event& launch);
  static Answer answer(std::int64_t operation);
  Answer await(std::int64_t operation) const;
  /// Also returns when all ranks stand still, so that what the operation needs may come after it.
  Answer await_or_standstill(std::int64_t operation) const;
  bool is_home() const;
  static std::string refusal(std::int64_t operation);

 private:
  /// Touches a buffer in flight, and lets it be found.
  virtual void touch_on_purpose() {}
  /// The first operations whose results have not been delivered.
  virtual std::string describe_in_flight() const { return ""; }

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
  void tell_place(const Event& event, const Place& place);
  bool asks(int thread) const;
  std::int64_t reserve(std::int64_t bytes);

  mutable std::mutex mutex_;  // guards all below
  Place place_;               // for the rank's own decisions; the referee knows it of events
  std::thread::id home_ = std::this_thread::get_id();

  mutable std::mutex asking_mutex_;
  mutable std::multiset<int> asking_;  // the kernel's ids of threads that wait for the referee
};

}  // namespace ddp
