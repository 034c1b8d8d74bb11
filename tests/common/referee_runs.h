#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>

#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"

// Runs of a refereed world, and what they left.

namespace ddp {

using RunScenario = std::function<void(const std::shared_ptr<Client>&, const ProcessGroupPtr&)>;

inline Evidence run_as(const World& world, const RunScenario& scenario) {
  return run_refereed(world, {}, [&](Client& client, RankContext&) {
    scenario(client.shared_from_this(), make_group(client.shared_from_this()));
  });
}

// The last value with this name that a rank has handed in.
inline at::Tensor value_of(const Evidence& evidence, int rank, const std::string& name) {
  at::Tensor value;
  for (const Seen& seen : evidence.of[rank]) {
    value = seen.kind == EventKind::kValue && seen.text == name ? seen.value : value;
  }
  return value;
}

inline const Seen* first_of(const Evidence& evidence, int rank, EventKind kind) {
  for (const Seen& seen : evidence.of[rank]) {
    if (seen.kind == kind) {
      return &seen;
    }
  }
  return nullptr;
}

}  // namespace ddp
