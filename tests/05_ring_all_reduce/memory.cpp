#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string_view>

#include "claims.h"
#include "scenarios.h"

// How much memory a call takes beside the tensor.

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

// Bytes for everything but chunks: handles, numbers, and what the allocator keeps for itself.
constexpr std::int64_t kConstant = std::int64_t{128} << 10;

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

Finding uses_much_memory(const Evidence& evidence) {
  std::map<int, std::int64_t> before;  // the first call, by rank
  std::int64_t chunk = 0;              // the largest so far, which may be kept
  for (const CallOfGroup& call : calls_in(evidence)) {
    if (call.prints()) {
      continue;
    }
    chunk = std::max(chunk, chunk_bytes(call)[0]);
    const auto bytes = static_cast<std::int64_t>(call.ranks[0].input().nbytes());
    const std::int64_t allowed = chunk + (call.strided() ? 2 * bytes : 0);
    const CheckOfRank check = [&](const auto&, const CallOfRank& rank) -> Finding {
      const auto first = before.emplace(rank.rank, rank.number(kHeapBefore).value()).first;
      const std::int64_t used = rank.number(kHeapPeak).value_or(first->second) - first->second;
      const std::int64_t kept = rank.number(kHeapAfter).value() - first->second;
      if (kept > chunk_bytes(call)[0] + kConstant) {
        return "after the call " + std::to_string(kept) +
               " bytes of the heap are kept beside the tensor; one chunk of this call, which is " +
               std::to_string(chunk_bytes(call)[0]) + " bytes, and " + std::to_string(kConstant) +
               " bytes may be: does a buffer that lasts only grow?";
      }
      return used <= allowed + kConstant
                 ? ""
                 : "at its peak the call used " + std::to_string(used) +
                       " bytes of the heap beside the tensor of " + std::to_string(bytes) +
                       " bytes; allowed are one chunk (" + std::to_string(chunk) + " bytes), " +
                       (call.strided() ? "two copies of a tensor that is not contiguous, " : "") +
                       "and " + std::to_string(kConstant) + " bytes";
    };
    if (Finding text = on_each_rank(call, check); !text.empty()) {
      return text;
    }
  }
  return "";
}

}  // namespace ddp::testing
