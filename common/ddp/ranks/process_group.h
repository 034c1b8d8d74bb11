#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ddp/collectives.h"

namespace ddp {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// Where a Gloo backend's sockets listen.
enum class Reach {
  kThisMachine,  ///< the loopback address: no other machine can connect, no firewall is involved
  kNetwork,      ///< the interface of this machine's host name, or the one in GLOO_SOCKET_IFNAME
};

/// A backend that moves CPU tensors by Gloo. All ranks must call it, with the same store (or stores
/// that share their keys), because it connects every pair of ranks before it returns. Several
/// backends on one store need a c10d::PrefixStore each. An operation that takes longer than
/// `timeout` throws c10::Error.
BackendPtr make_gloo_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout, Reach reach = Reach::kThisMachine);

/// The process group that student code and c10d::Reducer see. `backend` runs all its operations,
/// whatever the device of their tensors; it may be Gloo, NCCL or a decorator around either.
ProcessGroupPtr make_process_group(const BackendPtr& backend, const StorePtr& store);

}  // namespace ddp
