#include "ddp/backends/cuda/cuda_library.h"

#include <ATen/cuda/CUDAContext.h>

#include <algorithm>
#include <cstdio>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace ddp {

namespace {

// Shuts down in its destructor, because ProcessGroupNCCL warns if it is destroyed without.
class NcclBackend : public c10d::ProcessGroupNCCL {
 public:
  using ProcessGroupNCCL::ProcessGroupNCCL;
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;
  ~NcclBackend() override { ProcessGroupNCCL::shutdown(); }
};

BackendPtr make_nccl_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<NcclBackend>(store, rank, world_size, options);
}

std::string gpu_identity(int index) {
  std::string text;
  for (const char byte :
       at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->uuid.bytes) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned char>(byte));
    text += hex.data();
  }
  return text;
}

}  // namespace

}  // namespace ddp

const ddp::CudaLibrary* ddp_cuda_library() {
  static constexpr ddp::CudaLibrary kLibrary{ddp::make_nccl_backend, ddp::gpu_identity};
  return &kLibrary;
}
