#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <string>
#include <vector>

namespace ddp {

// Of tables whose entries have a `name`.

template <typename Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) {
    names.emplace_back(entry.name);
  }
  return names;
}

/// Throws c10::ValueError, listing the known names, for any other.
template <typename Table>
const auto& named(const std::string& name, const Table& table, const char* kind) {
  for (const auto& entry : table) {
    if (entry.name == name) {
      return entry;
    }
  }
  TORCH_CHECK_VALUE(false, "unknown ", kind, " \"", name,
                    "\"; there are: ", c10::Join(", ", names_of(table)));
}

}  // namespace ddp
