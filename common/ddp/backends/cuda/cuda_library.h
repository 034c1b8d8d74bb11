#pragma once

#include <chrono>
#include <string>

#include "ddp/ranks/process_group.h"

namespace ddp {

/// The functions of libddp_cuda.so, see ddp_cuda_library().
struct CudaLibrary {
  BackendPtr (*make_nccl_backend)(const StorePtr& store, int rank, int world_size,
                                  std::chrono::milliseconds timeout);
  /// Equal for two ranks if and only if they use the same GPU.
  std::string (*gpu_identity)(int index);
};

}  // namespace ddp

/// The only symbol that is looked up in libddp_cuda.so.
extern "C" const ddp::CudaLibrary* ddp_cuda_library();
