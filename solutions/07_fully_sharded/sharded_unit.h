#pragma once

#include <ATen/ATen.h>

#include <map>
#include <utility>
#include <vector>

#include "07_fully_sharded/fully_sharded.h"
#include "ddp/flat_layout.h"
#include "ddp/gradient_hooks.h"
#include "ddp/storage.h"

namespace ddp {

inline constexpr const char* kWho = "fully sharded: ";  // begins all messages

/// A unit as its rank holds it: an N-th always, and all of it while it is needed.
struct ShardedUnit {
  UnitFunction function;
  FlatLayout layout;
  at::Tensor shard = {};
  at::Tensor flat = {};  // autograd's leaf, which has memory only while the unit is whole
  WorkPtr gathering = {};
  GradientHook hook = {};

  std::vector<at::Tensor> parameters() const { return layout.views_of(flat); }

  void let_go() {
    if (gathering) {
      std::exchange(gathering, nullptr)->wait();
    }
    empty_storage(flat);
  }
};

/// Throws what the contract asks for and FlatLayout does not look at.
inline void check(const std::vector<Unit>& units) {
  TORCH_CHECK(!units.empty(), kWho, "the list of units is empty");
  std::map<const c10::TensorImpl*, std::size_t> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u) {
    TORCH_CHECK(units[u].function, kWho, "the function of unit ", u, " is empty");
    for (std::size_t i = 0; i < units[u].parameters.size(); ++i) {
      const at::Tensor& parameter = units[u].parameters[i];
      TORCH_CHECK(parameter.defined() && parameter.is_floating_point() && parameter.requires_grad(),
                  kWho, "parameter ", i, " of unit ", u,
                  " should be there, be of floating point and require a gradient");
      const std::size_t owner = unit_of.emplace(parameter.unsafeGetTensorImpl(), u).first->second;
      TORCH_CHECK(owner == u, kWho, "parameter ", i, " of unit ", u, " is in unit ", owner,
                  ", too");
    }
  }
}

}  // namespace ddp
