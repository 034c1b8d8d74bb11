#include "ddp/simulation/timeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ddp/backends/backend_decorator.h"

namespace ddp {

void Timeline::add_names(const std::vector<NamedTensor>& tensors) {
  const std::lock_guard lock(mutex_);
  names_.add(tensors);
}

void Timeline::set_group(const std::string& group) {
  const std::lock_guard lock(mutex_);
  group_ = group;
}

void Timeline::set_origin(std::int64_t ns) {
  const std::lock_guard lock(mutex_);
  origin_ns_ = ns;
}

void Timeline::add(SpanKind kind, const std::string& name, std::int64_t begin_ns,
                   std::int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  append({.kind = kind, .name = name, .group = group_, .begin_ns = begin_ns, .end_ns = end_ns},
         /*complete=*/true);
}

Timeline::Launched Timeline::launch(const Operation& operation, std::int64_t launched_ns) {
  const std::lock_guard lock(mutex_);
  const auto& tensors = operation.inputs.empty() ? operation.outputs : operation.inputs;
  return append({.kind = SpanKind::kCommunication,
                 .name = operation_name(operation.type) +
                         (tensors.empty() ? "" : " of " + names_.of(tensors[0])),
                 .group = group_,
                 .launched_ns = launched_ns,
                 .bytes = operation.payload_bytes()},
                /*complete=*/false, operation.is_message());
}

Timeline::Launched Timeline::append(Span span, bool complete, bool is_message) {
  entries_.push_back({std::move(span), origin_ns_, complete, is_message});
  return first_ + static_cast<Launched>(entries_.size()) - 1;
}

void Timeline::complete(Launched operation, std::int64_t begin_ns, std::int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  if (operation < first_ || entries_[operation - first_].complete) {
    return;
  }
  Entry& entry = entries_[operation - first_];
  entry.span.begin_ns = begin_ns;
  entry.span.end_ns = end_ns;
  entry.complete = true;
  completed_.notify_all();
}

void Timeline::settle() {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [&] {
    return std::ranges::all_of(
        entries_, [](const Entry& entry) { return entry.complete || entry.is_message; });
  });
}

std::vector<Span> Timeline::take_spans() {
  const std::lock_guard lock(mutex_);
  std::vector<Span> spans;
  for (Entry& entry : entries_) {
    if (!entry.complete) {
      continue;
    }
    for (auto time : {&Span::begin_ns, &Span::end_ns, &Span::launched_ns}) {
      entry.span.*time -= entry.origin_ns;
    }
    spans.push_back(std::move(entry.span));
  }
  first_ += static_cast<Launched>(entries_.size());
  entries_.clear();
  return spans;
}

std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace ddp
