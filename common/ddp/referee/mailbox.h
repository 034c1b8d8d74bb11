#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ddp/ranks/bell.h"
#include "ddp/referee/event.h"

namespace ddp {

/// What the referee has said about an operation.
enum class Answer : std::uint32_t {
  kNone,      // it is not complete
  kComplete,  // its result is in the arena
  kRefused,   // the ranks disagree about it, see Mailbox::refusal()
  kGone,      // a rank that it needs has ended, see Mailbox::refusal()
};

/// What a rank and the referee share: the rank's events in order, an arena for the bytes of
/// tensors, and the referee's answers. Either side writes its own part only. Any number of threads
/// of a rank may wait for answers; whoever posts takes care that they do so in turn.
class Mailbox {
 public:
  static constexpr std::int64_t kEvents = 1 << 8;       // posted, and not taken yet
  static constexpr std::int64_t kOperations = 1 << 17;  // of one rank in one run
  static constexpr std::int64_t kArenaBytes = std::int64_t{1} << 30;
  static constexpr int kMaxDim = 6;  // of a value

  struct Memory;
  Mailbox(Memory* memory, char* arena, Bell* news) : memory_(memory), arena_(arena), news_(news) {}

  // In the rank.
  void post(const Event& event);
  /// Blocks until the referee has taken all events.
  void await_taken() const;
  bool all_taken() const;
  Answer answer(std::int64_t operation) const;
  /// Blocks until the operation is answered, or for `limit`.
  Answer await(std::int64_t operation, std::chrono::milliseconds limit) const;
  /// Rung with every answer.
  Bell& answers() const;
  std::string refusal() const;

  // In the referee.
  /// The next event, if there is one; its bytes stay where they are until pop(). Throws c10::Error
  /// if no client would have posted it.
  std::optional<Event> peek() const;
  void pop();
  void give(std::int64_t operation, Answer answer, std::string_view refusal = "");

  /// In both: the arena.
  char* bytes(std::int64_t offset) const { return arena_ + offset; }

 private:
  Memory* memory_;  // owned by the mailroom, like the rest
  char* arena_;
  Bell* news_;
};

/// The mailboxes of a world. Made before its ranks are forked; only pages in use take memory.
class Mailroom {
 public:
  explicit Mailroom(int world_size);
  Mailroom(const Mailroom&) = delete;
  Mailroom& operator=(const Mailroom&) = delete;
  ~Mailroom();

  Mailbox of(int rank) const;
  /// Rung with every event.
  Bell& news() const;

 private:
  int world_size_;
  std::size_t bytes_;
  char* memory_;  // the mapping
};

}  // namespace ddp
