#include <algorithm>

#include "claims.h"

// How much memory a call takes beside the tensor.

namespace ddp::testing {

namespace {

// Bytes for everything but chunks: handles, numbers, and what the allocator keeps for itself.
constexpr std::int64_t kConstant = std::int64_t{128} << 10;

}  // namespace

std::string uses_much_memory(const Evidence& evidence) {
  std::map<int, std::int64_t> before;  // the first call, by rank
  std::int64_t chunk = 0;              // the largest so far, which may be kept
  for (const CallOfGroup& call : calls_in(evidence)) {
    if (call.prints()) {
      continue;
    }
    chunk = std::max(chunk, chunk_bytes(call)[0]);
    const auto bytes = static_cast<std::int64_t>(call.ranks[0].input().nbytes());
    const std::int64_t allowed = chunk + (call.strided() ? 2 * bytes : 0);
    const CheckOfRank check = [&](const auto&, const CallOfRank& rank) -> std::string {
      const auto first = before.emplace(rank.rank, rank.facts.at("heap before")).first;
      const auto peak = rank.facts.find("heap peak");
      const std::int64_t used = peak == rank.facts.end() ? 0 : peak->second - first->second;
      const std::int64_t kept = rank.facts.at("heap after") - first->second;
      if (kept > chunk_bytes(call)[0] + kConstant) {
        return "after the call " + std::to_string(kept) +
               " bytes of the heap are kept beside the tensor; one chunk of this call, which is " +
               std::to_string(chunk_bytes(call)[0]) + " bytes, and " + std::to_string(kConstant) +
               " bytes may be: does a buffer that lasts only grow?";
      }
      return used <= allowed + kConstant
                 ? ""
                 : "at its peak the call had " + std::to_string(used) +
                       " bytes of the heap in use beside the tensor, which has " +
                       std::to_string(bytes) + ". One chunk, which is " + std::to_string(chunk) +
                       " bytes here, " +
                       (call.strided() ? "two copies of a tensor that is not contiguous, " : "") +
                       "and " + std::to_string(kConstant) + " bytes are enough";
    };
    if (auto text = on_each_rank(call, check); !text.empty()) {
      return text;
    }
  }
  return "";
}

}  // namespace ddp::testing
