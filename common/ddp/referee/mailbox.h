#pragma once

#include <atomic>
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
/// tensors, and the referee's answers, which a rank can only read, see Mailroom::enter(). The
/// referee believes nothing that it can check. Any number of threads of a rank may wait for answers;
/// whoever posts takes care that they do so in turn.
class Mailbox {
 public:
  static constexpr std::int64_t kEvents = 1 << 8;       // posted, and not taken yet
  static constexpr std::int64_t kOperations = 1 << 17;  // of one rank in one run
  // Five times what solutions need.
  static constexpr std::int64_t kArenaBytes = std::int64_t{1} << 28;
  static constexpr int kMaxDim = 6;  // of a value

  struct RanksPart;
  struct RefereesPart;
  /// `bell`: what wakes the referee up, in the rank.
  Mailbox(RanksPart* rank, RefereesPart* referee, char* arena, int bell)
      : rank_(rank), referee_(referee), arena_(arena), bell_(bell) {}

  // In the rank.
  void post(const Event& event);
  /// Blocks until the referee has taken all events.
  void await_taken() const;
  /// Whether the referee wants a buffer touched on purpose, now that it has taken the last event.
  bool wants_touch() const;
  /// A number for an operation, and how many there have been.
  std::int64_t number_operation();
  std::int64_t operations() const;
  /// A place in the arena. Bytes are needed until the referee has taken their event, and those of an
  /// operation from hold() to release(). If none are, the arena begins anew; none if it is full.
  std::optional<std::int64_t> reserve(std::int64_t bytes);
  void hold();
  void release();
  Answer answer(std::int64_t operation) const;
  /// Blocks until the operation is answered.
  Answer await(std::int64_t operation) const;
  /// The same, or until all ranks stand still.
  Answer await_or_standstill(std::int64_t operation) const;
  /// How often the referee has found that all ranks stand still.
  std::uint32_t standstills() const;
  std::string refusal(std::int64_t operation) const;

  // In the referee.
  /// Whether peek() would find an event.
  bool has_event() const { return !all_taken(); }
  /// While the referee sleeps, events ring.
  void set_asleep(bool asleep);
  /// The next event, if there is one; its bytes stay where they are until pop(). Throws c10::Error
  /// if no client would have posted it.
  std::optional<Event> peek() const;
  /// `touch`: the rank shall touch a buffer on purpose, if it waits for this event to be taken.
  void pop(bool touch = false);
  void give(std::int64_t operation, Answer answer, std::string_view refusal = "");
  void tell_standstill();

  /// In both: the arena.
  char* bytes(std::int64_t offset) const { return arena_ + offset; }

 private:
  bool all_taken() const;
  std::uint32_t text(std::string_view refusal);

  RanksPart* rank_;  // owned by the mailroom, like the rest
  RefereesPart* referee_;
  char* arena_;
  int bell_;
};

/// Whatever the machine's pages are, these are whole ones.
constexpr std::size_t kWholePages = 1 << 16;

/// Throws c10::Error if `holds` is false: a rank's mailbox says `what` as no client would.
void require_of_client(bool holds, const char* what);

/// The mailboxes of a world. Made before its ranks are forked; only pages in use take memory.
class Mailroom {
 public:
  explicit Mailroom(int world_size);
  Mailroom(const Mailroom&) = delete;
  Mailroom& operator=(const Mailroom&) = delete;
  ~Mailroom();

  Mailbox of(int rank, int bell = -1) const;
  /// In a rank's process: what is other ranks' goes, what the referee tells it becomes read-only:
  /// for good, where the kernel can seal memory (Linux 6.10).
  void enter(int rank) const;

 private:
  std::size_t bytes_;
  char* memory_;  // the mapping
};

}  // namespace ddp
