#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <string>

#include "ddp/launching/launch.h"
#include "ddp/launching/process_group.h"

namespace ddp {

// GPUs without linking to CUDA: programs start faster, run on machines without CUDA, and may fork.
// The CUDA and NCCL part is libddp_cuda.so beside this library, if cmake/Cuda.cmake could build it;
// it is loaded on first use.

/// True if this build has libddp_cuda.so.
bool cuda_built();

/// How many GPUs CUDA shows to this process; CUDA_VISIBLE_DEVICES is respected. The first call asks
/// in a short-lived child, so that this process may still fork ranks: CUDA does not survive a fork.
int visible_gpus();

/// Why no GPU can be used here, as one line to follow "skipped: "; empty if one can.
std::string why_no_gpu();

/// Makes CUDA tensors usable in this process. Call it in a rank, before any other use of tensors.
/// Throws c10::Error if why_no_gpu() is not empty.
void load_cuda();

/// This rank's device of a type: the CPU, or the GPU whose index is the local rank. Loads CUDA for
/// the latter. Ranks share GPUs if there are more ranks than GPUs.
at::Device device_of_rank(at::DeviceType type, const RankContext& context);

/// A backend that moves CUDA tensors by NCCL, which refuses two ranks on one GPU. Call load_cuda()
/// first.
BackendPtr make_nccl_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout);

/// The backend for tensors on `device`: Gloo for the CPU; for a GPU, NCCL if every rank has its own
/// GPU, else Gloo through host memory. All ranks must call it, and make several calls in the same
/// order.
BackendPtr make_device_backend(const at::Device& device, const RankContext& context,
                               std::chrono::milliseconds timeout = std::chrono::minutes(5));

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
