#include "ddp/referee/witness.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ddp/referee/own_access.h"
#include "ddp/referee/thread_sleep.h"

namespace ddp {

Witness::Asking::Asking(const Witness& witness) : witness_(witness), thread_(this_thread_id()) {
  const std::lock_guard lock(witness_.asking_mutex_);
  witness_.asking_.insert(thread_);
}

Witness::Asking::~Asking() {
  const std::lock_guard lock(witness_.asking_mutex_);
  witness_.asking_.erase(witness_.asking_.find(thread_));
}

bool Witness::asks(int thread) const {
  const std::lock_guard lock(asking_mutex_);
  return asking_.contains(thread);
}

Answer Witness::await(std::int64_t operation, std::chrono::milliseconds limit) const {
  const Asking asking(*this);
  return mailbox_.await(operation, limit);
}

Place Witness::place() const {
  const std::lock_guard lock(mutex_);
  return place_;
}

void Witness::go_to(const Place& place) {
  const std::lock_guard lock(mutex_);
  place_ = place;
  post({{.kind = EventKind::kPhase}});
}

void Witness::come_home() {
  const std::lock_guard lock(mutex_);
  home_ = std::this_thread::get_id();
}

bool Witness::is_home() const {
  const std::lock_guard lock(mutex_);
  return std::this_thread::get_id() == home_;
}

void Witness::ready(std::int64_t gradient) {
  const std::lock_guard lock(mutex_);
  place_.ready = static_cast<std::int32_t>(gradient);
  Event event{{.kind = EventKind::kReady}};
  event.index = gradient;
  post(event);
}

void Witness::compute(std::int64_t ns, const std::string& layer) {
  Event event{{.kind = EventKind::kCompute}};
  event.number = ns;
  event.text = layer;
  const std::lock_guard lock(mutex_);
  post(event);
}

void Witness::value(const std::string& name, const at::Tensor& tensor, std::int64_t index) {
  const OwnAccess own;
  Event event{{.kind = EventKind::kValue}};
  event.text = name;
  event.index = index;
  const std::lock_guard lock(mutex_);
  if (tensor.defined()) {
    TORCH_CHECK(tensor.dim() <= Mailbox::kMaxDim, "a value of ", tensor.dim(), " dimensions");
    const at::Tensor plain = tensor.is_sparse() ? tensor.to_dense() : tensor.detach();
    event.tensors = 1;
    event.dtype = plain.scalar_type();
    event.sizes = plain.sizes().vec();
    event.elements = plain.numel();
    event.input_bytes = event.elements * static_cast<std::int64_t>(plain.element_size());
    event.offset = reserve(event.input_bytes);
    at::from_blob(mailbox_.bytes(event.offset), plain.sizes(), plain.scalar_type()).copy_(plain);
  }
  post(event);
}

void Witness::fact(const std::string& name, std::int64_t number, std::int64_t index) {
  Event event{{.kind = EventKind::kFact}};
  event.text = name;
  event.number = number;
  event.index = index;
  const std::lock_guard lock(mutex_);
  post(event);
}

void Witness::threw(const std::string& call, const std::string& exception) {
  say(EventKind::kThrew, -1, call, exception);
}

void Witness::say(EventKind kind, std::int64_t operation, const std::string& text,
                  const std::string& detail) {
  Event event{{.kind = kind}};
  event.operation = operation;
  event.text = text;
  event.detail = detail;
  const std::lock_guard lock(mutex_);
  post(event);
}

Event Witness::launch(Event event, const std::function<void(char*)>& fill) {
  const std::lock_guard lock(mutex_);
  event.offset = reserve(std::max(event.input_bytes, event.output_bytes));
  fill(mailbox_.bytes(event.offset));
  ++launched_;
  post(event);
  return event;
}

void Witness::release() {
  const std::lock_guard lock(mutex_);
  --launched_;
}

// With the mutex held, like reserve().
void Witness::post(Event event) {
  event.place = place_;
  event.home = std::this_thread::get_id() == home_;
  event.thread = this_thread_id();
  if (event.kind == EventKind::kLaunch || event.kind == EventKind::kWait) {
    threads_.insert(event.thread);
  }
  const Asking asking(*this);  // the mailbox may be full
  mailbox_.post(event);
}

// Bytes are needed until the referee has taken their event, and those of an operation until its
// result is delivered. If nothing is, the arena begins anew.
std::int64_t Witness::reserve(std::int64_t bytes) {
  if (launched_ == 0 && used_ + bytes > Mailbox::kArenaBytes) {
    mailbox_.await_taken();
  }
  if (launched_ == 0 && mailbox_.all_taken()) {
    used_ = 0;
  }
  TORCH_CHECK(used_ + bytes <= Mailbox::kArenaBytes, "rank ", rank_, " has more than ",
              Mailbox::kArenaBytes >> 20, " MiB in flight");
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t offset = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

std::vector<int> members_of(const World& world, int group) {
  if (group > 0) {
    return world.subgroups.at(group - 1);
  }
  std::vector<int> all(world.ranks);
  for (int rank = 0; rank < world.ranks; ++rank) {
    all[rank] = rank;
  }
  return all;
}

}  // namespace ddp
