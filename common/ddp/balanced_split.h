#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <vector>

namespace ddp {

/// A run of consecutive elements: [begin, begin + size). Both count elements, not bytes.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// Splits `elements` into `parts` consecutive chunks whose sizes differ by at most one: the first
/// (elements % parts) chunks get one element more. If there are fewer elements than parts, the last
/// chunks are empty. Example: 7 elements in 3 parts are the chunks {0, 3}, {3, 2}, {5, 2}. Throws
/// c10::Error if elements < 0 or parts < 1.
inline std::vector<Chunk> balanced_split(std::int64_t elements, int parts) {
  TORCH_CHECK(elements >= 0 && parts >= 1, "balanced_split: ", elements, " elements in ", parts,
              " parts: at least 0 elements and 1 part are needed");
  const std::int64_t smaller = elements / parts;
  const std::int64_t larger_count = elements % parts;
  std::vector<Chunk> chunks;
  chunks.reserve(parts);
  std::int64_t begin = 0;
  for (int part = 0; part < parts; ++part) {
    const std::int64_t size = part < larger_count ? smaller + 1 : smaller;
    chunks.push_back({begin, size});
    begin += size;
  }
  return chunks;
}

}  // namespace ddp
