#include "experiments/ddp_suite/first_ranks.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ddp/backends/cuda.h"
#include "ddp/backends/host_staged_backend.h"
#include "ddp/backends/limited_link.h"

namespace ddp {
namespace {

BackendPtr take_tensors_of(const at::Device& device, BackendPtr gloo) {
  if (device.is_cpu()) {
    return gloo;
  }
  return c10::make_intrusive<HostStagedBackend>(std::move(gloo));
}

}  // namespace

DeviceContext make_patient_device_context(const BenchmarkOptions& options, const Link& link,
                                          const RankContext& context) {
  const at::Device device =
      device_of_rank(options.device == "cuda" ? at::kCUDA : at::kCPU, context);
  const BackendPtr backend = make_backend(link.backend, device, context, kPatience);
  return {.device = device, .group = make_process_group(backend, store_for_next_backend(context))};
}

ProcessGroupPtr group_of_first_ranks(int ranks, const std::string& name, const Link& link,
                                     const RankContext& context, const DeviceContext& all) {
  if (context.rank >= ranks) {
    return nullptr;
  }
  const auto store = c10::make_intrusive<c10d::PrefixStore>("first_ranks/" + name, context.store);
  BackendPtr backend;
  if (all.group->getDefaultBackend()->getBackendName() == kNcclBackend) {
    backend = make_nccl_backend(store, context.rank, ranks, kPatience);
  } else {
    backend =
        take_tensors_of(all.device, make_gloo_backend_of_first(ranks, store, context, kPatience));
  }
  return make_process_group(limited(std::move(backend), link),
                            c10::make_intrusive<c10d::PrefixStore>("group", store));
}

}  // namespace ddp
