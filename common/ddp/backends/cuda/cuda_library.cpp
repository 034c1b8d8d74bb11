#include <ATen/cuda/CUDAContext.h>
#include <torch/csrc/cuda/nccl.h>

#include <algorithm>
#include <cstdio>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "ddp/backends/cuda.h"

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

BackendPtr make_backend(const StorePtr& store, int rank, int world_size,
                        std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<NcclBackend>(store, rank, world_size, options);
}

// c10d's types contain NCCL's, which grow from version to version: another header, and libtorch reads what is not there.
void check_nccl_version() {
  constexpr std::uint64_t kMinor = std::uint64_t{1} << 16;
  constexpr std::uint64_t kMajor = std::uint64_t{1} << 32;
  const std::uint64_t theirs = torch::cuda::nccl::version();
  constexpr std::uint64_t kOurs = NCCL_MAJOR * kMajor + NCCL_MINOR * kMinor + NCCL_PATCH;
  TORCH_CHECK(theirs == kOurs, "libddp_cuda.so was compiled with NCCL ", NCCL_MAJOR, ".",
              NCCL_MINOR, ".", NCCL_PATCH, "'s header, libtorch with ", theirs / kMajor, ".",
              theirs % kMajor / kMinor, ".", theirs % kMinor,
              "'s. Install that version's nccl.h, then: make setup");
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
  ddp::check_nccl_version();
  static constexpr ddp::CudaLibrary kLibrary{ddp::make_backend, ddp::gpu_identity};
  return &kLibrary;
}
