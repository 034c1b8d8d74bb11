#include "ddp/simulation/timeline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "ddp/backends/backend_decorator.h"
#include "ddp/collectives.h"

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

namespace {

// Notes when a wait or a poll shows that an operation is complete: a callback of its future may come
// long after, on a thread that waits for a core.
class TimedWork : public WorkDecorator {
 public:
  TimedWork(WorkPtr inner, std::function<void()> complete)
      : WorkDecorator(std::move(inner)), complete_(std::move(complete)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner()->wait(timeout);
    complete_();
    return done;
  }

  bool isCompleted() override {
    const bool done = inner()->isCompleted();
    if (done) {
      complete_();
    }
    return done;
  }

 private:
  const std::function<void()> complete_;
};

}  // namespace

TimelineBackend::TimelineBackend(BackendPtr inner, std::shared_ptr<Timeline> timeline)
    : BackendDecorator(std::move(inner)), timeline_(std::move(timeline)) {}

WorkPtr TimelineBackend::run(Operation operation) {
  const std::int64_t launched_ns = steady_ns();
  WorkPtr work = operation.start(inner(), operation);
  timeline_->add(SpanKind::kCompute, "launch", launched_ns, steady_ns());
  // After the start, so that looking up its name does not delay it.
  const Timeline::Launched launched = timeline_->launch(operation, launched_ns);
  const auto complete = [timeline = timeline_, launched, launched_ns] {
    timeline->complete(launched, launched_ns, steady_ns());
  };
  if (!operation.is_message()) {  // for whoever waits for the future
    work->getFuture()->addCallback([complete](c10::ivalue::Future&) { complete(); },
                                   /*uses_future=*/false);
  }
  return c10::make_intrusive<TimedWork>(std::move(work), complete);
}

std::int64_t agree_on_origin(const ProcessGroupPtr& group, bool one_machine) {
  barrier(group);
  std::int64_t origin = steady_ns();
  if (one_machine) {
    const at::Tensor latest = at::full({1}, origin, at::kLong);
    all_reduce(latest, group, ReduceOp::kMax);
    origin = latest.item<std::int64_t>();
  }
  return origin;
}

}  // namespace ddp
