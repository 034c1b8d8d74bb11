#include "ddp/referee/recorder.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "ddp/ranks/confine.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/patience.h"
#include "ddp/referee/standstill.h"

namespace ddp {

namespace {

// What a rank is for good. Its address is a part of the code, so there is no pointer to overwrite.
struct Identity {
  World world;
  int rank;
  Mailbox mailbox;
};
static_assert(sizeof(Identity) <= kWholePages);

// Somewhere in it begins a page, whatever the machine's and the loader's alignment are.
std::array<char, 2 * kWholePages> room_of_identity{};
std::atomic<bool> has_identity{false};

void* place_of_identity() {
  const auto begin = reinterpret_cast<std::uintptr_t>(room_of_identity.data());
  return reinterpret_cast<void*>((begin + kWholePages - 1) / kWholePages * kWholePages);
}

// In row-major order from dimension `dim` on, without an operator, which code under test may have replaced.
// Returns where the next element goes.
char* copy_elements(const at::Tensor& tensor, std::int64_t dim, const char* from, char* to) {
  const std::size_t bytes = tensor.element_size();
  if (dim == 0 && tensor.is_contiguous()) {
    return std::copy_n(from, tensor.nbytes(), to);
  }
  if (dim == tensor.dim()) {
    return std::copy_n(from, bytes, to);
  }
  for (std::int64_t i = 0; i < tensor.size(dim); ++i) {
    const std::int64_t offset = i * tensor.stride(dim) * static_cast<std::int64_t>(bytes);
    to = copy_elements(tensor, dim + 1, from + offset, to);
  }
  return to;
}

const Identity& self() { return *static_cast<const Identity*>(place_of_identity()); }

Mailbox mailbox() { return self().mailbox; }

}  // namespace

Recorder::Recorder(World world, int rank, Mailbox mailbox) {
  TORCH_CHECK(!has_identity.exchange(true), "a process can be a rank of one world only");
  void* const page = place_of_identity();
  new (page) Identity{std::move(world), rank, mailbox};
  mprotect(page, kWholePages, PROT_READ);
  seal_memory(page, kWholePages);
}

int Recorder::rank() { return self().rank; }

const World& Recorder::world() { return self().world; }

std::int64_t Recorder::number_operation() { return mailbox().number_operation(); }

std::int64_t Recorder::operations() { return mailbox().operations(); }

char* Recorder::bytes_of(const Event& launch) { return mailbox().bytes(launch.offset); }

Answer Recorder::answer(std::int64_t operation) { return mailbox().answer(operation); }

std::string Recorder::refusal(std::int64_t operation) { return mailbox().refusal(operation); }

Recorder::Asking::Asking(const Recorder& recorder)
    : recorder_(recorder), thread_(this_thread_id()) {
  const std::lock_guard lock(recorder_.asking_mutex_);
  recorder_.asking_.insert(thread_);
}

Recorder::Asking::~Asking() {
  const std::lock_guard lock(recorder_.asking_mutex_);
  recorder_.asking_.erase(recorder_.asking_.find(thread_));
}

bool Recorder::asks(int thread) const {
  const std::lock_guard lock(asking_mutex_);
  return asking_.contains(thread);
}

Answer Recorder::await(std::int64_t operation) const {
  const Asking asking(*this);
  return mailbox().await(operation);
}

Answer Recorder::await_or_standstill(std::int64_t operation) const {
  const Asking asking(*this);
  return mailbox().await_or_standstill(operation);
}

Place Recorder::place() const {
  const std::lock_guard lock(mutex_);
  return place_;
}

// Waits for the referee, so that nothing which happens from here on can be told as if it were earlier, nor
// what happened before as if it were later.
void Recorder::tell_place(const Event& event, const Place& place) {
  bool touch = false;
  {
    const std::lock_guard lock(mutex_);
    place_ = place;
    post(event);
    const Asking asking(*this);
    mailbox().await_taken();
    touch = mailbox().wants_touch();
  }
  if (touch) {
    touch_on_purpose();
  }
}

void Recorder::go_to(const Place& place) {
  Event event{{.kind = EventKind::kPhase}};
  event.place = place;
  tell_place(event, place);
}

void Recorder::come_home() {
  const std::lock_guard lock(mutex_);
  home_ = std::this_thread::get_id();
}

bool Recorder::is_home() const {
  const std::lock_guard lock(mutex_);
  return std::this_thread::get_id() == home_;
}

void Recorder::ready(std::int64_t gradient) {
  Event event{{.kind = EventKind::kReady}};
  event.index = gradient;
  Place now = place();
  now.ready = static_cast<std::int32_t>(gradient);
  tell_place(event, now);
}

void Recorder::compute(std::int64_t ns, const std::string& layer) {
  Event event{{.kind = EventKind::kCompute}};
  event.number = ns;
  event.text = layer;
  const std::lock_guard lock(mutex_);
  post(event);
}

void Recorder::value(const std::string& name, const at::Tensor& tensor, std::int64_t index) {
  const OwnAccess own;
  Event event{{.kind = EventKind::kValue}};
  event.text = name;
  event.index = index;
  const std::lock_guard lock(mutex_);
  if (tensor.defined()) {
    TORCH_CHECK(tensor.dim() <= Mailbox::kMaxDim, "a value of ", tensor.dim(), " dimensions");
    const at::Tensor dense = tensor.is_sparse() ? tensor.to_dense() : tensor;
    const at::Tensor plain = dense.is_cpu() ? dense : dense.cpu();
    event.tensors = 1;
    event.dtype = plain.scalar_type();
    event.sizes = plain.sizes().vec();
    event.elements = plain.numel();
    event.input_bytes = event.elements * static_cast<std::int64_t>(plain.element_size());
    event.offset = reserve(event.input_bytes);
    if (event.elements > 0) {
      copy_elements(plain, 0, static_cast<const char*>(plain.const_data_ptr()),
                    mailbox().bytes(event.offset));
    }
  }
  post(event);
}

void Recorder::fact(const std::string& name, std::int64_t number, std::int64_t index) {
  Event event{{.kind = EventKind::kFact}};
  event.text = name;
  event.number = number;
  event.index = index;
  const std::lock_guard lock(mutex_);
  post(event);
}

void Recorder::threw(const std::string& call, const std::string& exception) {
  say(EventKind::kThrew, -1, call, exception);
}

void Recorder::say(EventKind kind, std::int64_t operation, const std::string& text,
                   const std::string& detail) {
  Event event{{.kind = kind}};
  event.operation = operation;
  event.text = text;
  event.detail = detail;
  const std::lock_guard lock(mutex_);
  post(event);
}

Event Recorder::launch(Event event, const std::function<void(char*)>& fill) {
  const std::lock_guard lock(mutex_);
  event.offset = reserve(std::max(event.input_bytes, event.output_bytes));
  fill(mailbox().bytes(event.offset));
  mailbox().hold();
  post(event);
  return event;
}

void Recorder::release() {
  const std::lock_guard lock(mutex_);
  mailbox().release();
}

// With the mutex held, like reserve().
void Recorder::post(Event event) {
  event.home = std::this_thread::get_id() == home_;
  event.thread = this_thread_id();
  const Asking asking(*this);  // the mailbox may be full
  mailbox().post(event);
}

std::int64_t Recorder::reserve(std::int64_t bytes) {
  const auto offset = mailbox().reserve(bytes);
  TORCH_CHECK(offset, "rank ", rank(), " has more than ", Mailbox::kArenaBytes >> 20,
              " MiB in flight", describe_in_flight());
  return *offset;
}

namespace {

// True if the thread is asleep and stays so for a moment, or has ended.
bool is_asleep(int thread) {
  const ThreadSleep before = look_at_thread(thread);
  std::this_thread::sleep_for(patience::kMoment);
  return !time_of_thread(thread) || (before.asleep && before == look_at_thread(thread));
}

}  // namespace

bool Recorder::await_rest(int thread, const std::function<bool()>& in_vain) const {
  const auto begin = time_of_thread(thread);
  const std::uint32_t standstills = mailbox().standstills();
  while (!in_vain()) {
    const bool asked = asks(thread);
    const bool asleep = is_asleep(thread);
    if (asked || asks(thread)) {
      // What it waits for there may itself depend on who waits for that thread.
      if (mailbox().standstills() != standstills) {
        return false;
      }
      continue;
    }
    const auto time = time_of_thread(thread);
    if (asleep || !begin || !time || *time - *begin > patience::kPolls) {
      return true;
    }
  }
  return false;
}

}  // namespace ddp
