#include "ddp/referee/mailbox.h"

#include <c10/util/Exception.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <type_traits>

#include "ddp/ranks/confine.h"

namespace ddp {

namespace {

// Longer than the referee looks whether a rank stays in the same sleep, see patience.h.
constexpr auto kLong = std::chrono::milliseconds(60'000);
// An answer that takes no longer is not worth a sleep, which costs two switches.
constexpr int kGlancesOfRank = 50;

// An event as it goes through shared memory; texts are cut to their fields.
struct Record : EventData {
  std::int8_t dim = 0;
  std::int64_t sizes[Mailbox::kMaxDim] = {};
  char shape[64] = {};
  char text[128] = {};
  char detail[256] = {};
};
static_assert(std::is_trivially_copyable_v<Record>);

template <std::size_t size>
void set_text(char (&field)[size], const std::string& text) {
  field[text.copy(field, size - 1)] = '\0';
}

template <std::size_t size>
std::string text_of(const char (&field)[size]) {
  return {field, strnlen(field, size)};
}

Record record_of(const Event& event) {
  Record record{static_cast<const EventData&>(event)};
  record.dim = static_cast<std::int8_t>(event.sizes.size());
  std::ranges::copy(event.sizes, record.sizes);
  set_text(record.shape, event.shape);
  set_text(record.text, event.text);
  set_text(record.detail, event.detail);
  return record;
}

Event event_of(const Record& record) {
  return {static_cast<const EventData&>(record),
          {record.sizes, record.sizes + record.dim},
          text_of(record.shape),
          text_of(record.text),
          text_of(record.detail)};
}

// Whether the byte of a bool is one: another may be taken for true and false.
bool is_bool(const bool& byte) { return reinterpret_cast<const unsigned char&>(byte) <= 1; }

// The elements of a shape, which has no more than fit into an arena; -1 if it is none.
std::int64_t count_of(const Record& event) {
  std::int64_t elements = 1;
  for (int dim = 0; dim < event.dim; ++dim) {
    const std::int64_t size = event.sizes[dim];
    if (size < 0 || size > Mailbox::kArenaBytes || elements * size > Mailbox::kArenaBytes) {
      return -1;
    }
    elements *= size;
  }
  return elements;
}

void check(const Record& event) {
  require_of_client(event.kind <= EventKind::kPhase && event.place.phase <= Phase::kEnd &&
                        is_bool(event.home) && is_bool(event.place.no_sync),
                    "an unknown event");
  require_of_client(event.type <= c10d::OpType::_ALLREDUCE_SPARSE ||  // or it has no name
                        event.type == c10d::OpType::UNKNOWN,
                    "an unknown operation");
  require_of_client(is_plain(event.dtype), "a dtype");
  require_of_client(event.operation >= -1 && event.operation < Mailbox::kOperations,
                    "an operation");
  require_of_client(event.dim >= 0 && event.dim <= Mailbox::kMaxDim, "a shape");
  const std::int64_t bytes = std::max(event.input_bytes, event.output_bytes);
  require_of_client(event.input_bytes >= 0 && event.output_bytes >= 0 && event.offset >= 0 &&
                        bytes <= Mailbox::kArenaBytes &&
                        event.offset <= Mailbox::kArenaBytes - bytes,
                    "bytes outside its arena");
  require_of_client(event.tensors >= 0 && event.elements >= 0 && event.elements <= bytes &&
                        event.bytes >= 0 && event.bytes <= bytes,
                    "a size that is not its bytes'");
  const auto item = static_cast<std::int64_t>(c10::elementSize(event.dtype));
  require_of_client(
      event.kind != EventKind::kValue || event.tensors == 0 ||
          (event.elements == count_of(event) && event.input_bytes == event.elements * item),
      "a value that is not its bytes'");
}

// Blocks until `condition`, which the bell announces.
template <typename Condition>
void await(Bell& bell, const Condition& condition) {
  for (int glance = 0; glance < kGlancesOfRank && !condition(); ++glance) {
    std::this_thread::yield();
  }
  while (true) {
    const std::uint32_t seen = bell.rings();
    if (condition()) {
      return;
    }
    bell.sleep(seen, kLong);
  }
}

}  // namespace

// Of the rank; the referee only reads it, and rings the bells.
struct Mailbox::RanksPart {
  std::atomic<std::int64_t> posted;
  std::atomic<std::int64_t> operations;  // numbers given
  std::int64_t used;                     // bytes of the arena; the poster's, like the next
  std::atomic<std::int64_t> held;        // operations that have a place there
  Bell taken_bell;                       // who sleeps at a bell writes that down
  Bell answers_bell;
  Record events[kEvents];  // a ring
};

// Of the referee; a rank only reads it.
struct Mailbox::RefereesPart {
  std::atomic<std::int64_t> taken;
  std::atomic<std::int64_t> touch;  // so many are taken, and the rank shall touch a buffer
  std::atomic<bool> asleep;
  std::atomic<std::uint32_t> standstills;
  std::atomic<std::uint32_t> answers[kOperations];  // an Answer, and where its text begins
  std::size_t texts_end;
  char texts[1 << 16];  // each once, with its 0
};

void Mailbox::post(const Event& event) {
  const std::int64_t index = rank_->posted.load();
  ddp::await(rank_->taken_bell, [&] { return index - referee_->taken.load() < kEvents; });
  rank_->events[index % kEvents] = record_of(event);
  rank_->posted.store(index + 1);
  if (referee_->asleep.load()) {
    eventfd_write(bell_, 1);
  }
}

bool Mailbox::all_taken() const { return referee_->taken.load() == rank_->posted.load(); }

void Mailbox::await_taken() const {
  ddp::await(rank_->taken_bell, [&] { return all_taken(); });
}

bool Mailbox::wants_touch() const { return referee_->touch.load() == rank_->posted.load(); }

std::int64_t Mailbox::number_operation() { return rank_->operations.fetch_add(1); }

std::int64_t Mailbox::operations() const { return rank_->operations.load(); }

std::optional<std::int64_t> Mailbox::reserve(std::int64_t bytes) {
  if (rank_->held == 0 && rank_->used + bytes > kArenaBytes) {
    await_taken();
  }
  if (rank_->held == 0 && all_taken()) {
    rank_->used = 0;
  }
  if (rank_->used + bytes > kArenaBytes) {
    return std::nullopt;
  }
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t offset = rank_->used;
  rank_->used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void Mailbox::hold() { ++rank_->held; }

void Mailbox::release() { --rank_->held; }

constexpr std::uint32_t kAnswerBits = 2;
constexpr std::uint32_t kAnswerMask = (1U << kAnswerBits) - 1;

Answer Mailbox::answer(std::int64_t operation) const {
  return static_cast<Answer>(referee_->answers[operation].load() & kAnswerMask);
}

Answer Mailbox::await(std::int64_t operation) const {
  ddp::await(rank_->answers_bell, [&] { return answer(operation) != Answer::kNone; });
  return answer(operation);
}

Answer Mailbox::await_or_standstill(std::int64_t operation) const {
  const std::uint32_t before = standstills();
  ddp::await(rank_->answers_bell,
             [&] { return answer(operation) != Answer::kNone || standstills() != before; });
  // What another rank has sent since it was told, too, depends on who wakes up first.
  return standstills() != before ? Answer::kNone : answer(operation);
}

std::uint32_t Mailbox::standstills() const { return referee_->standstills.load(); }

std::string Mailbox::refusal(std::int64_t operation) const {
  return referee_->texts + (referee_->answers[operation].load() >> kAnswerBits);
}

std::optional<Event> Mailbox::peek() const {
  const std::int64_t index = referee_->taken.load();
  const std::int64_t ahead = rank_->posted.load() - index;
  require_of_client(ahead >= 0 && ahead <= kEvents, "a count of events");
  if (ahead == 0) {
    return std::nullopt;
  }
  const Record record = rank_->events[index % kEvents];  // a copy, which the rank cannot change
  std::atomic_signal_fence(std::memory_order_acquire);   // and which no compiler reads once more
  check(record);
  return event_of(record);
}

void Mailbox::set_asleep(bool asleep) { referee_->asleep.store(asleep); }

void Mailbox::pop(bool touch) {
  const std::int64_t taken = referee_->taken.load() + 1;
  if (touch) {
    referee_->touch.store(taken);
  }
  referee_->taken.store(taken);
  rank_->taken_bell.ring();
}

// Where a text is in the referee's part; the last that fits, if there is no more room.
std::uint32_t Mailbox::text(std::string_view refusal) {
  std::string whole(refusal);
  whole += '\0';
  const std::string_view known(referee_->texts, referee_->texts_end);
  if (const auto found = known.find(whole); found != known.npos) {
    return static_cast<std::uint32_t>(found);
  }
  const std::size_t begin = referee_->texts_end;
  whole.resize(std::min(whole.size(), sizeof(referee_->texts) - 1 - begin));
  whole.copy(referee_->texts + begin, whole.size());
  referee_->texts_end += whole.size();
  return static_cast<std::uint32_t>(begin);
}

void Mailbox::give(std::int64_t operation, Answer answer, std::string_view refusal) {
  referee_->answers[operation].store(static_cast<std::uint32_t>(answer) | text(refusal)
                                                                              << kAnswerBits);
  rank_->answers_bell.ring();
}

void Mailbox::tell_standstill() {
  ++referee_->standstills;
  rank_->answers_bell.ring();
}

void require_of_client(bool holds, const char* what) {
  TORCH_CHECK(holds, "its mailbox holds what no client posts: ", what);
}

constexpr std::size_t in_whole_pages(std::size_t bytes) {
  return (bytes + kWholePages - 1) / kWholePages * kWholePages;
}

constexpr std::size_t kRefereesBytes = in_whole_pages(sizeof(Mailbox::RefereesPart));
constexpr std::size_t kRanksBytes = in_whole_pages(sizeof(Mailbox::RanksPart));
constexpr std::size_t kBytesOfARank = kRefereesBytes + kRanksBytes + Mailbox::kArenaBytes;

// Layout: for each rank the referee's part, its own, and its arena. Zero bytes are a valid start of each.
Mailroom::Mailroom(int world_size) : bytes_(world_size * kBytesOfARank) {
  void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "no ", bytes_ >> 20, " MiB of address space for ", world_size,
              " ranks: ", std::strerror(errno));
  memory_ = static_cast<char*>(address);
}

Mailroom::~Mailroom() { munmap(memory_, bytes_); }

Mailbox Mailroom::of(int rank, int bell) const {
  char* const referees = memory_ + rank * kBytesOfARank;
  char* const ranks = referees + kRefereesBytes;
  return {reinterpret_cast<Mailbox::RanksPart*>(ranks),
          reinterpret_cast<Mailbox::RefereesPart*>(referees), ranks + kRanksBytes, bell};
}

void Mailroom::enter(int rank) const {
  const std::size_t begin = rank * kBytesOfARank;
  const std::size_t end = begin + kBytesOfARank;
  // Not only unreadable: which pages of a mapping are in use can be asked without reading them.
  munmap(memory_, begin);
  munmap(memory_ + end, bytes_ - end);
  mprotect(memory_ + begin, kRefereesBytes, PROT_READ);
  seal_memory(memory_ + begin, kBytesOfARank);
}

}  // namespace ddp
