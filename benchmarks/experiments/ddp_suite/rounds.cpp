#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ddp/backends/cuda.h"
#include "ddp/backends/host_staged_backend.h"
#include "ddp/backends/limited_link.h"
#include "experiments/ddp_suite/suite.h"

namespace ddp {
namespace {

constexpr int kMostRanks = 8;  // per machine, as published

std::string name_of(int ranks, const std::vector<int>& local_ranks) {
  const auto machines = std::count(local_ranks.begin(), local_ranks.begin() + ranks, 0);
  const auto largest = *std::max_element(local_ranks.begin(), local_ranks.begin() + ranks);
  return std::to_string(machines) + "M/" + std::to_string(largest + 1) + "G";
}

}  // namespace

std::vector<SuiteRound> plan_suite_rounds(const std::vector<int>& local_ranks) {
  const int world = static_cast<int>(local_ranks.size());
  const auto second_machine = std::find(local_ranks.begin() + 1, local_ranks.end(), 0);
  const int machine = static_cast<int>(second_machine - local_ranks.begin());
  std::set<int> sizes = {world};
  for (int ranks = 1; ranks < machine; ranks *= 2) {
    sizes.insert(ranks);
  }
  for (int ranks = machine; ranks <= world; ranks += machine) {
    sizes.insert(ranks);
  }
  std::vector<SuiteRound> rounds = {{.name = "no ddp", .ranks = 1, .uses_ddp = false}};
  for (const int ranks : sizes) {
    rounds.push_back({.name = name_of(ranks, local_ranks), .ranks = ranks});
  }
  return rounds;
}

std::vector<int> gather_local_ranks(const RankContext& context,
                                    const DeviceContext& device_context) {
  const at::Tensor mine = at::full({1}, placement_of(context).local_rank,
                                   at::device(device_context.device).dtype(at::kInt));
  const at::Tensor all = all_gather(mine, device_context.group).view(-1).cpu();
  return {all.const_data_ptr<int>(), all.const_data_ptr<int>() + all.numel()};
}

int default_suite_ranks(const std::string& device, double bytes_of_rank) {
  if (device == "cuda") {
    return std::max(visible_gpus(), 1);
  }
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const auto fits = [&](int ranks) {
    return ranks <= static_cast<int>(std::thread::hardware_concurrency()) &&
           ranks * bytes_of_rank <= memory;
  };
  int ranks = 2;
  while (ranks < kMostRanks && fits(2 * ranks)) {
    ranks *= 2;
  }
  return ranks;
}

ProcessGroupPtr group_of_first_ranks(int ranks, const std::string& name, const LinkLimit& link,
                                     const RankContext& context, const DeviceContext& all) {
  if (context.rank >= ranks) {
    return nullptr;
  }
  const auto store = c10::make_intrusive<c10d::PrefixStore>("first_ranks/" + name, context.store);
  BackendPtr backend;
  if (all.group->getDefaultBackend()->getBackendName() == kNcclBackend) {
    backend = make_nccl_backend(store, context.rank, ranks, kPatience);
  } else {
    backend = make_gloo_backend_of_first(ranks, store, context, kPatience);
    if (all.device.is_cuda()) {
      backend = c10::make_intrusive<HostStagedBackend>(std::move(backend));
    }
  }
  return make_process_group(limited(std::move(backend), link),
                            c10::make_intrusive<c10d::PrefixStore>("group", store));
}

}  // namespace ddp
