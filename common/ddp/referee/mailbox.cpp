#include "ddp/referee/mailbox.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <type_traits>

namespace ddp {

namespace {

constexpr auto kLong = std::chrono::milliseconds(1'000);
// An answer that takes no longer is not worth a sleep, which costs two switches.
constexpr int kGlancesOfRank = 50;

void require(bool holds, const char* what) {
  TORCH_CHECK(holds, "a rank's mailbox holds what no client posts: ", what);
}

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

void check(const Record& event) {
  require(event.kind <= EventKind::kPhase && event.place.phase <= Phase::kEnd, "an unknown event");
  require(static_cast<int>(event.dtype) >= 0 && event.dtype < at::ScalarType::NumOptions,
          "a dtype");
  require(event.operation >= -1 && event.operation < Mailbox::kOperations, "an operation");
  require(event.operation >= 0 || event.kind != EventKind::kLaunch, "a launch without a number");
  require(event.elements >= 0 && event.bytes >= 0, "a negative size");
  require(event.dim >= 0 && event.dim <= Mailbox::kMaxDim, "a shape");
  const std::int64_t bytes = std::max(event.input_bytes, event.output_bytes);
  require(event.input_bytes >= 0 && event.output_bytes >= 0 && event.offset >= 0 &&
              bytes <= Mailbox::kArenaBytes && event.offset <= Mailbox::kArenaBytes - bytes,
          "bytes outside its arena");
}

// Blocks until `condition`, which the bell announces, or for `limit`.
template <typename Condition>
void await(Bell& bell, const Condition& condition,
           std::chrono::milliseconds limit = std::chrono::hours(24)) {
  for (int glance = 0; glance < kGlancesOfRank && !condition(); ++glance) {
    std::this_thread::yield();
  }
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const std::uint32_t seen = bell.rings();
    if (condition() || std::chrono::steady_clock::now() - begin > limit) {
      return;
    }
    bell.sleep(seen, std::min(kLong, limit));
  }
}

constexpr std::size_t kPage = 4096;

}  // namespace

struct Mailbox::Memory {
  std::atomic<std::int64_t> posted;
  std::atomic<std::int64_t> taken;
  Bell taken_bell;
  Bell answers_bell;
  Record events[kEvents];  // a ring
  std::atomic<Answer> answers[kOperations];
  char refusal[4096];
};

void Mailbox::post(const Event& event) {
  const std::int64_t index = memory_->posted.load();
  ddp::await(memory_->taken_bell, [&] { return index - memory_->taken.load() < kEvents; });
  memory_->events[index % kEvents] = record_of(event);
  memory_->posted.store(index + 1);
  news_->ring();
}

bool Mailbox::all_taken() const { return memory_->taken.load() == memory_->posted.load(); }

void Mailbox::await_taken() const {
  ddp::await(memory_->taken_bell, [&] { return all_taken(); });
}

Answer Mailbox::answer(std::int64_t operation) const { return memory_->answers[operation].load(); }

Answer Mailbox::await(std::int64_t operation, std::chrono::milliseconds limit) const {
  ddp::await(
      memory_->answers_bell, [&] { return answer(operation) != Answer::kNone; }, limit);
  return answer(operation);
}

Bell& Mailbox::answers() const { return memory_->answers_bell; }

std::string Mailbox::refusal() const { return memory_->refusal; }

std::optional<Event> Mailbox::peek() const {
  const std::int64_t index = memory_->taken.load();
  if (memory_->posted.load() <= index) {
    return std::nullopt;
  }
  const Record record = memory_->events[index % kEvents];  // a copy, which the rank cannot change
  check(record);
  return event_of(record);
}

void Mailbox::pop() {
  memory_->taken.fetch_add(1);
  memory_->taken_bell.ring();
}

void Mailbox::give(std::int64_t operation, Answer answer, std::string_view refusal) {
  if (!refusal.empty()) {
    const std::size_t length = std::min(refusal.size(), sizeof(memory_->refusal) - 1);
    refusal.copy(memory_->refusal, length);
    memory_->refusal[length] = '\0';
  }
  memory_->answers[operation].store(answer);
  memory_->answers_bell.ring();
}

constexpr std::size_t kMailboxBytes = (sizeof(Mailbox::Memory) + kPage - 1) / kPage * kPage;

// Layout: the news bell, the ranks' mailboxes, their arenas, each from a page's beginning. Zero bytes
// are a valid start of each.
Mailroom::Mailroom(int world_size)
    : world_size_(world_size), bytes_(kPage + world_size * (kMailboxBytes + Mailbox::kArenaBytes)) {
  void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "no ", bytes_ >> 20, " MiB of address space for ", world_size,
              " ranks: ", std::strerror(errno));
  memory_ = static_cast<char*>(address);
}

Mailroom::~Mailroom() { munmap(memory_, bytes_); }

Bell& Mailroom::news() const { return *reinterpret_cast<Bell*>(memory_); }

Mailbox Mailroom::of(int rank) const {
  char* mailboxes = memory_ + kPage;
  return {reinterpret_cast<Mailbox::Memory*>(mailboxes + rank * kMailboxBytes),
          mailboxes + world_size_ * kMailboxBytes + rank * Mailbox::kArenaBytes, &news()};
}

}  // namespace ddp
