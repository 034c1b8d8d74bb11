#include "heap_watch.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <string_view>

namespace ddp::testing {

namespace {

// A callback is a plain function, so its state has to be global.
Client* watched = nullptr;
std::atomic<bool> looking{false};
std::atomic<std::int64_t> peak_bytes{0};

void look() {
  const std::int64_t now = heap_bytes();
  std::int64_t before = peak_bytes;
  while (before < now && !peak_bytes.compare_exchange_weak(before, now)) {
  }
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
  if (looking) {
    look();
  }
  if (std::string_view(call.name()).starts_with("c10d::")) {
    watched->look_at_buffers();
  }
  return nullptr;
}

}  // namespace

HeapWatch::HeapWatch(Client& client) {
  watched = &client;
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(on_operator).scopes({at::RecordScope::FUNCTION}));
}

HeapWatch::~HeapWatch() { at::removeCallback(handle_); }

void HeapWatch::begin() {
  heap_ = heap_bytes();
  peak_bytes = heap_;
  tensors_before_ = tensors_.live_bytes();
  tensors_.reset_peak();
  looking = true;
}

std::int64_t HeapWatch::end() {
  look();
  looking = false;
  return std::max(peak_bytes.load(), heap_ + tensors_.peak_bytes() - tensors_before_);
}

}  // namespace ddp::testing
