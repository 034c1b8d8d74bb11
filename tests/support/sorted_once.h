#pragma once

#include <map>

#include "ddp/referee/evidence.h"

namespace ddp::testing {

/// What `sort` makes of the evidence of a body, made once: every claim asks for it, and evidence is
/// kept as long as the program runs.
template <typename Sorted>
const Sorted& sorted_once(const Evidence& evidence, Sorted (*sort)(const Evidence&)) {
  static std::map<const Evidence*, Sorted> all;
  const auto found = all.find(&evidence);
  return found != all.end() ? found->second : all[&evidence] = sort(evidence);
}

}  // namespace ddp::testing
