#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ddp/ranks/launch.h"

namespace ddp {

// GPUs, without linking to CUDA: programs start faster, run where there is none, and may fork. The
// CUDA and NCCL part is libddp_cuda.so beside this library, where cmake/Cuda.cmake could build it;
// it is loaded when it is first asked for.

/// True if this build has libddp_cuda.so.
bool cuda_built();

/// How many GPUs CUDA shows to this process, CUDA_VISIBLE_DEVICES counted in. The first call asks
/// in a short-lived child, so that this process may go on to fork ranks: CUDA does not survive a
/// fork.
int visible_gpus();

/// Why nothing can run on a GPU here, in one line that follows "skipped: "; empty if it can.
std::string why_no_gpu();

/// Makes CUDA tensors usable in this process. To be called before anything else is done with
/// tensors, in a rank. Throws c10::Error where why_no_gpu() has something to say.
void load_cuda();

/// This rank's device of a type: the CPU, or the GPU with its number on the machine. Loads CUDA for
/// the latter. Ranks share GPUs where there are more of them.
at::Device device_of_rank(at::DeviceType type, const RankContext& context);

/// A backend that moves CUDA tensors by NCCL, which takes no two ranks on one GPU. Needs
/// load_cuda().
BackendPtr make_nccl_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout);

/// The backend for tensors on `device`: Gloo for the CPU; for a GPU NCCL if every rank has one of
/// its own, else Gloo through host memory. All ranks must call it, in the same order where there
/// are several.
BackendPtr make_device_backend(const at::Device& device, const RankContext& context,
                               std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace ddp
