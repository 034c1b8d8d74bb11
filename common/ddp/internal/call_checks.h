#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

// Checks of an operation's arguments that this rank can make alone. Each throws c10::Error with a
// message that names the call.

namespace ddp {

inline void check_defined(const char* call, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), call, ": the tensor is undefined");
}

/// `rank` must be a rank of a group of `world_size`.
inline void check_member(const char* call, int rank, int world_size) {
  TORCH_CHECK(rank >= 0 && rank < world_size, call, ": there is no rank ", rank, " in a group of ",
              world_size, ", whose ranks are 0 to ", world_size - 1);
}

/// `peer`, the other end of a message of `self`, must be another rank of the group.
inline void check_partner(const char* call, int peer, int self, int world_size) {
  check_member(call, peer, world_size);
  TORCH_CHECK(peer != self, call, ": rank ", self, " exchanges no messages with itself");
}

}  // namespace ddp
