#include "ddp/timeline/timeline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "ddp/backends/operation_backend.h"
#include "ddp/collectives.h"
#include "ddp/launching/launch.h"
#include "ddp/meters/whole_file.h"

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

namespace {

using Json = nlohmann::ordered_json;

// A store's server accepts no value larger than 8 MiB.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

constexpr const char* kCompute = "compute";
constexpr const char* kCommunication = "communication";

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

// Assigns each operation to the first row that is free when it begins.
class Rows {
 public:
  std::size_t place(const Span& span) {
    std::size_t row = 0;
    while (row < busy_until_.size() && busy_until_[row] > span.begin_ns) {
      ++row;
    }
    busy_until_.resize(std::max(busy_until_.size(), row + 1));
    busy_until_[row] = span.end_ns;
    return row;
  }

 private:
  std::vector<std::int64_t> busy_until_;
};

class ChromeTrace {
 public:
  /// Shifts all times if some are before zero: viewers drop negative times.
  explicit ChromeTrace(const std::vector<RankSpans>& ranks) {
    for (const RankSpans& rank : ranks) {
      for (const Span& span : rank.spans) {
        shift_ns_ = std::max(shift_ns_, -span.begin_ns);
        if (span.kind == SpanKind::kCommunication) {
          shift_ns_ = std::max(shift_ns_, -span.launched_ns);
        }
      }
    }
  }

  void add_process(const std::string& group, int rank, std::vector<Span> spans) {
    ++process_;
    const std::string name = (group.empty() ? "" : group + ", ") + "rank " + std::to_string(rank);
    describe("process_name", 0, {{"name", name}});
    describe("process_sort_index", 0, {{"sort_index", process_}});
    const int compute = add_thread(kCompute);
    // Enclosing spans first.
    std::ranges::stable_sort(
        spans, {}, [](const Span& span) { return std::pair(span.begin_ns, -span.end_ns); });

    Rows rows;
    std::vector<int> threads;
    for (const Span& span : spans) {
      if (span.kind != SpanKind::kCommunication) {
        add_span(span, compute);
        continue;
      }
      const std::size_t row = rows.place(span);
      if (row == threads.size()) {
        threads.push_back(add_thread(kCommunication));
      }
      add_operation(span, compute, threads[row]);
    }
  }

  // One event per line, for human readers.
  std::string text() const {
    std::string list;
    for (const Json& event : events_) {
      list += (list.empty() ? "" : ",\n") + event.dump();
    }
    return R"({"displayTimeUnit": "ns", "traceEvents": [)"
           "\n" +
           list + "\n]}\n";
  }

 private:
  int add_thread(const char* name) {
    ++thread_;  // thread ids are unique on a machine: no two processes share one
    describe("thread_name", thread_, {{"name", name}});
    describe("thread_sort_index", thread_, {{"sort_index", thread_}});
    return thread_;
  }

  void describe(const char* what, int thread, const Json& arguments) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", process_}, {"tid", thread}, {"args", arguments}});
  }

  Json event(const char* phase, const Span& span, int thread, std::int64_t ns) const {
    return {{"ph", phase},
            {"name", span.name},
            {"cat", span.kind == SpanKind::kCommunication ? kCommunication : kCompute},
            {"pid", process_},
            {"tid", thread},
            {"ts", microseconds(ns + shift_ns_)}};
  }

  void add_span(const Span& span, int thread) {
    if (span.kind == SpanKind::kInstant) {
      Json moment = event("i", span, thread, span.begin_ns);
      moment["s"] = "p";  // a line through the whole process
      events_.push_back(std::move(moment));
      return;
    }
    Json whole = event("X", span, thread, span.begin_ns);
    whole["dur"] = microseconds(span.end_ns - span.begin_ns);
    events_.push_back(std::move(whole));
  }

  void add_operation(const Span& span, int compute, int thread) {
    add_span(span, thread);
    events_.back()["args"] = {{"bytes", span.bytes},
                              {"launched", microseconds(span.launched_ns + shift_ns_)}};
    ++arrow_;
    Json tail = event("s", span, compute, span.launched_ns);
    Json head = event("f", span, thread, span.begin_ns);
    head["bp"] = "e";  // it ends in the span that encloses it, not in the next one
    for (Json* end : {&tail, &head}) {
      (*end)["id"] = arrow_;
      events_.push_back(std::move(*end));
    }
  }

  std::int64_t shift_ns_ = 0;
  std::vector<Json> events_;
  int process_ = 0;
  int thread_ = 0;
  int arrow_ = 0;
};

std::string to_text(const std::vector<Span>& spans) {
  Json list = Json::array();
  for (const Span& span : spans) {
    list.push_back({static_cast<int>(span.kind), span.name, span.group, span.begin_ns, span.end_ns,
                    span.launched_ns, span.bytes});
  }
  return list.dump();
}

std::vector<Span> spans_of_text(const std::string& text) {
  std::vector<Span> spans;
  for (const Json& item : Json::parse(text)) {
    spans.push_back({.kind = static_cast<SpanKind>(item[0].get<int>()),
                     .name = item[1],
                     .group = item[2],
                     .begin_ns = item[3],
                     .end_ns = item[4],
                     .launched_ns = item[5],
                     .bytes = item[6]});
  }
  return spans;
}

}  // namespace

void write_chrome_trace(const std::vector<RankSpans>& ranks, const std::filesystem::path& file) {
  std::vector<std::string> groups;  // in the order of their first span
  for (const RankSpans& rank : ranks) {
    for (const Span& span : rank.spans) {
      if (std::ranges::find(groups, span.group) == groups.end()) {
        groups.push_back(span.group);
      }
    }
  }
  ChromeTrace trace(ranks);
  for (const std::string& group : groups) {
    for (const RankSpans& rank : ranks) {
      std::vector<Span> spans;
      std::ranges::copy_if(rank.spans, std::back_inserter(spans),
                           [&](const Span& span) { return span.group == group; });
      if (!spans.empty()) {  // not every rank takes part in every group
        trace.add_process(group, rank.rank, std::move(spans));
      }
    }
  }
  write_whole_file(file, trace.text(), "--trace");
}

std::vector<RankSpans> gather_spans(const std::vector<Span>& spans, const RankContext& context) {
  const StorePtr store = store_for_next_backend(context);
  const auto key = [](int rank, const std::string& what) {
    return std::to_string(rank) + "/" + what;
  };
  const std::string text = to_text(spans);
  const std::size_t pieces = text.size() / kPieceBytes + 1;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::string part = text.substr(piece * kPieceBytes, kPieceBytes);
    store->set(key(context.rank, std::to_string(piece)), part);
  }
  store->set(key(context.rank, "pieces"), std::to_string(pieces));

  std::vector<RankSpans> ranks;
  for (int rank = 0; context.rank == 0 && rank < context.world_size; ++rank) {
    const std::size_t count = std::stoul(store->get_to_str(key(rank, "pieces")));
    std::string theirs;
    for (std::size_t piece = 0; piece < count; ++piece) {
      theirs += store->get_to_str(key(rank, std::to_string(piece)));
    }
    ranks.push_back({rank, spans_of_text(theirs)});
  }
  return ranks;
}

}  // namespace ddp
