#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "ddp/referee/mailbox.h"
#include "ddp/referee/world.h"

namespace ddp {

/// A rank's evidence: what happens in it, as it happens. It decides nothing, and keeps nothing.
///
/// Any thread may call all functions, but only the one that runs the body goes from place to place.
class Witness {
 public:
  Witness(World world, int rank, Mailbox mailbox)
      : world_(std::move(world)), rank_(rank), mailbox_(mailbox) {}
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  virtual ~Witness() = default;

  int rank() const { return rank_; }
  const World& world() const { return world_; }

  Place place() const;
  void go_to(const Place& place);
  /// The thread that runs the body is this one now.
  void come_home();

  /// Backward has computed a gradient.
  void ready(std::int64_t gradient);
  void compute(std::int64_t ns, const std::string& layer);
  void value(const std::string& name, const at::Tensor& tensor, std::int64_t index = -1);
  void fact(const std::string& name, std::int64_t number, std::int64_t index = -1);
  void threw(const std::string& call, const std::string& exception);

  /// Rests for a random moment, in a world that is shaken.
  void rest() const;

  // Of operations.
  void say(EventKind kind, std::int64_t operation, const std::string& text = "",
           const std::string& detail = "");
  /// Says that an operation is launched: `fill` writes its inputs to the arena. Returns the event
  /// with their place there, which is the operation's until release().
  Event launch(Event event, const std::function<void(char*)>& fill);
  void release();
  /// Where the result of an operation is, after its inputs have been taken.
  char* bytes_of(const Event& launch) const { return mailbox_.bytes(launch.offset); }
  Answer answer(std::int64_t operation) const { return mailbox_.answer(operation); }
  Answer await(std::int64_t operation) const { return mailbox_.await(operation); }
  std::string refusal() const { return mailbox_.refusal(); }

 private:
  void post(Event event);
  std::int64_t reserve(std::int64_t bytes);

  const World world_;
  const int rank_;
  mutable std::mutex mutex_;  // guards all below
  Mailbox mailbox_;
  Place place_;
  std::thread::id home_ = std::this_thread::get_id();
  std::int64_t used_ = 0;  // bytes of the arena
  int launched_ = 0;       // operations that have a place there
};

}  // namespace ddp
