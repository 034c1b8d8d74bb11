#include "grader/memory_account.h"

#include <algorithm>
#include <vector>

#include "grader/training_claims.h"

namespace ddp::testing {

void MemoryAccount::tell(const std::string& what, std::int64_t allowed, std::int64_t bytes,
                         const MemoryMeter::Sizes& sizes) {
  client_.fact(kBytesAllowed, allowed);
  std::vector<std::pair<std::int64_t, std::int64_t>> largest(sizes.begin(), sizes.end());
  std::ranges::sort(largest, std::greater(),
                    [](const auto& each) { return each.first * each.second; });
  largest.resize(std::min<std::size_t>(largest.size(), bytes > allowed ? 4 : 0));
  for (const auto& [size, count] : largest) {
    std::string named;
    const auto [begin, end] = names_.equal_range(size);
    for (auto name = begin; name != end; ++name) {
      named += (named.empty() ? " (" : " or ") + name->second;
    }
    client_.fact(kAlive + std::to_string(size) + " bytes" + (named.empty() ? "" : named + ")"),
                 count);
  }
  client_.fact(kBytes + what, bytes);
}

}  // namespace ddp::testing
