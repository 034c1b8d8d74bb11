#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

// What a call of an operation must fulfil on this rank alone, with messages that name the call.
// Each throws c10::Error.

namespace ddp {

inline void check_defined(const char* call, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), call, ": the tensor is undefined");
}

/// `rank` is one of a group of `world_size`.
inline void check_member(const char* call, int rank, int world_size) {
  TORCH_CHECK(rank >= 0 && rank < world_size, call, ": there is no rank ", rank, " in a group of ",
              world_size, ", whose ranks are 0 to ", world_size - 1);
}

/// The other end of a message of `self` is one of the group, and another one.
inline void check_partner(const char* call, int peer, int self, int world_size) {
  check_member(call, peer, world_size);
  TORCH_CHECK(peer != self, call, ": rank ", self, " exchanges no messages with itself");
}

}  // namespace ddp
