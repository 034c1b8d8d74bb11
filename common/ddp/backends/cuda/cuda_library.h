#pragma once

#include <chrono>
#include <string>

#include "ddp/ranks/process_group.h"

namespace ddp {

/// What libddp_cuda.so has to offer, see ddp_cuda_library().
struct CudaLibrary {
  BackendPtr (*make_nccl_backend)(const StorePtr& store, int rank, int world_size,
                                  std::chrono::milliseconds timeout);
  /// The same text for two ranks exactly if they use the same GPU.
  std::string (*gpu_identity)(int index);
};

}  // namespace ddp

/// The one name that is looked up in libddp_cuda.so.
extern "C" const ddp::CudaLibrary* ddp_cuda_library();
