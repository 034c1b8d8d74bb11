#include "ddp/backends/cuda.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "ddp/backends/host_staged_backend.h"

namespace ddp {

namespace {

namespace fs = std::filesystem;

fs::path cuda_library_path() {
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&cuda_built), &here);
  return fs::path(here.dli_fname).parent_path() / "libddp_cuda.so";
}

const CudaLibrary& cuda_library() {
  static const CudaLibrary* library = [] {
    const std::string reason = why_no_gpu();
    TORCH_CHECK(reason.empty(), "CUDA is not usable: ", reason);
    void* handle = dlopen(cuda_library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(
        handle != nullptr, "cannot load the CUDA part: ", dlerror(),
        ". make setup DEVICE=cuda brings PyTorch's CUDA libraries into .venv; with PYTHON= or "
        "LIBTORCH= they must lie where its libtorch_cuda.so looks for them");
    return reinterpret_cast<decltype(&ddp_cuda_library)>(dlsym(handle, "ddp_cuda_library"))();
  }();
  return *library;
}

// Asks the driver, which every machine with a GPU has. Returns 0 on any failure.
int count_gpus() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return 0;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  return init != nullptr && get_count != nullptr && init(0) == 0 && get_count(&count) == 0 ? count
                                                                                           : 0;
}

int count_gpus_in_child() {
  const pid_t child = fork();
  if (child == 0) {
    _exit(std::min(count_gpus(), 127));  // the count is the exit code
  }
  int status = 0;
  const bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
  return ended ? WEXITSTATUS(status) : 0;
}

// Each rank reads the GPUs of all ranks, so all ranks return the same answer.
bool each_rank_has_its_own_gpu(const at::Device& device, const RankContext& context) {
  const StorePtr store = store_for_next_backend(context);
  const std::string mine = cuda_library().gpu_identity(device.index());
  store->set(std::to_string(context.rank), mine);
  std::set<std::string> gpus;
  for (int rank = 0; rank < context.world_size; ++rank) {
    gpus.insert(store->get_to_str(std::to_string(rank)));
  }
  return static_cast<int>(gpus.size()) == context.world_size;
}

}  // namespace

bool cuda_built() {
  std::error_code ignored;
  return fs::exists(cuda_library_path(), ignored);
}

int visible_gpus() {
  static const int count = count_gpus_in_child();
  return count;
}

std::string why_no_gpu() {
  if (!cuda_built()) {
    return "the CUDA part is not built here: make test DEVICE=cuda builds it, or says why it "
           "cannot";
  }
  return visible_gpus() == 0 ? "no GPU is visible: make doctor says what the driver shows" : "";
}

void load_cuda() { cuda_library(); }

at::Device device_of_rank(at::DeviceType type, const RankContext& context) {
  if (type == at::kCPU) {
    return at::kCPU;
  }
  load_cuda();
  return {type, static_cast<c10::DeviceIndex>(placement_of(context).local_rank % visible_gpus())};
}

BackendPtr make_nccl_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout) {
  return cuda_library().make_nccl_backend(store, rank, world_size, timeout);
}

BackendPtr make_device_backend(const at::Device& device, const RankContext& context,
                               std::chrono::milliseconds timeout) {
  if (device.is_cuda() && each_rank_has_its_own_gpu(device, context)) {
    return make_nccl_backend(store_for_next_backend(context), context.rank, context.world_size,
                             timeout);
  }
  BackendPtr gloo = make_gloo_backend(context, timeout);
  if (device.is_cpu()) {
    return gloo;
  }
  return c10::make_intrusive<HostStagedBackend>(gloo);
}

}  // namespace ddp
