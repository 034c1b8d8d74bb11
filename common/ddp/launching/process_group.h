#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ddp/collectives.h"

namespace ddp {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// A backend that moves CPU tensors by Gloo. All ranks must call it, with the same store (or stores
/// that share their keys), because it connects every pair of ranks before it returns. Several
/// backends on one store need a c10d::PrefixStore each. An operation that takes longer than
/// `timeout` throws c10::Error. Its sockets listen at `address`, this machine's: by the default, which
/// no other machine can connect to, no firewall is involved.
BackendPtr make_gloo_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout,
                             const std::string& address = "127.0.0.1");

/// The process group that student code and c10d::Reducer see. `backend` runs all its operations,
/// whatever the device of their tensors; it may be Gloo, NCCL or a decorator around either. Without a
/// store the ranks may talk by the group alone: whoever uses its store is told so.
ProcessGroupPtr make_process_group(const BackendPtr& backend, const StorePtr& store = nullptr);

}  // namespace ddp
