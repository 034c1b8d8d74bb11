#include "ddp/cluster/cluster.h"

#include <string>

#include "ddp/cluster/operators.h"
#include "ddp/ranks/exceptions.h"
#include "ddp/ranks/rank_output.h"

namespace ddp::cluster {

namespace {

ClusterOptions checked(const ClusterOptions& options) {
  TORCH_CHECK_VALUE(options.world_size > 0, "a cluster needs at least one rank, not ",
                    options.world_size);
  TORCH_CHECK_VALUE(options.slowdown_beside_communication >= 1, "slowdown_beside_communication is ",
                    options.slowdown_beside_communication,
                    ", but communication does not make computing faster: give 1 or more");
  TORCH_CHECK_VALUE(options.kernel_ns_beside_communication >= 0,
                    "kernel_ns_beside_communication is ", options.kernel_ns_beside_communication,
                    ", but communication does not make kernels faster: give 0 or more");
  TORCH_CHECK_VALUE(options.slowdown_beside_computing >= 1, "slowdown_beside_computing is ",
                    options.slowdown_beside_computing,
                    ", but computing does not make communication faster: give 1 or more");
  check(options.device);
  check(options.topology);
  return options;
}

ProcessGroupPtr make_group(const BackendPtr& backend) {
  allow_meta_collectives();
  ProcessGroupPtr group = make_process_group(backend);
  group->setBackend(c10::kMeta, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return group;
}

// The innermost one that has a line; libtorch's own headers are inlined with none.
std::string place_of_last_throw() {
  for (const std::string& place : name_places(last_throw())) {
    if (place.find(".cpp:") != std::string::npos || place.find(".h:") != std::string::npos) {
      return place;
    }
  }
  return "";
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options)
    : options_(checked(options)),
      backend_(c10::make_intrusive<ClusterBackend>(options_)),
      group_(make_group(backend_)) {
  remember_throws();
}

void Cluster::run(const std::function<void()>& code) {
  const OperatorWatch watch([this](const DataMovement& movement) { backend_->compute(movement); });
  try {
    code();
  } catch (c10::Error& error) {
    const std::string place = is_stub_error(error) ? "" : place_of_last_throw();
    if (place.empty()) {
      throw;
    }
    TORCH_CHECK(!is_memory_error(error), "data_ptr(): ", kNoValues, " (", place, ")");
    error.add_context(place);
    throw;
  }
}

std::int64_t Cluster::time(const std::function<void()>& code) {
  begin_step();
  run(code);
  return clocks().now();
}

}  // namespace ddp::cluster
