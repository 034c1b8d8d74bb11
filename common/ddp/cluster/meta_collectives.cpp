#include "ddp/cluster/meta_collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace ddp::cluster {

namespace {

// c10d's kernel for CPU tensors only hands them to the group's backend for the CPU.
void as_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

}  // namespace

void allow_meta_collectives() {
  static const torch::Library kernels = [] {
    torch::Library library(torch::Library::IMPL, "c10d", c10::DispatchKey::Meta, __FILE__,
                           __LINE__);
    for (const char* operation :
         {"allreduce_", "allreduce_coalesced_", "allgather_", "_allgather_base_",
          "allgather_into_tensor_coalesced_", "alltoall_", "alltoall_base_", "broadcast_",
          "gather_", "recv_", "reduce_", "reduce_scatter_", "_reduce_scatter_base_",
          "reduce_scatter_tensor_coalesced_", "scatter_", "send"}) {
      library.impl(operation, torch::CppFunction::makeFromBoxedFunction<&as_on_cpu>());
    }
    return library;
  }();
}

}  // namespace ddp::cluster
