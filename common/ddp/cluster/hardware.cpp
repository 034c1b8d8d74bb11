#include "ddp/cluster/hardware.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "ddp/network_model.h"

namespace ddp::cluster {

std::int64_t operator_ns(const Device& device, double flops, double bytes) {
  const double computing = flops / (device.flops_per_second * device.efficiency);
  return std::llround(1e9 * std::max(computing, bytes / device.bytes_per_second));
}

void check(const Device& device) {
  const auto positive = [&](const char* field, double value) {
    TORCH_CHECK_VALUE(value > 0, "the device \"", device.name, "\" has ", field, " = ", value,
                      ", but needs a number above 0");
  };
  positive("flops_per_second", device.flops_per_second);
  positive("bytes_per_second", device.bytes_per_second);
  positive("efficiency", device.efficiency);
  TORCH_CHECK_VALUE(device.efficiency <= 1, "the device \"", device.name,
                    "\" has efficiency = ", device.efficiency, ", but no operator beats the peak");
  TORCH_CHECK_VALUE(device.launch_ns >= 0, "the device \"", device.name,
                    "\" has launch_ns = ", device.launch_ns,
                    ", but a launch takes no negative time");
}

namespace {

// A world on a topology, in the letters of the formula.
struct Shape {
  double p, n;
  Link inside, between;

  Shape(const Topology& topology, std::int64_t world_size)
      : p(static_cast<double>(world_size)),
        n(std::ceil(p / static_cast<double>(topology.gpus_per_node))),
        inside(std::min(topology.gpus_per_node, world_size) > 1 ? topology.inside : Link{}),
        between(n > 1 ? topology.between : Link{}) {}

  double alpha_inside() const { return static_cast<double>(inside.alpha_ns); }
  double alpha_between() const { return static_cast<double>(between.alpha_ns); }
  double slowest_beta() const {
    return std::max(inside.beta_ns_per_byte, between.beta_ns_per_byte);
  }
  double ring_latency() const { return (p - n) * alpha_inside() + (n - 1) * alpha_between(); }
  double ring(double bytes) const {
    return 2 * ring_latency() + 2 * (p - 1) / p * (bytes * slowest_beta());
  }
};

void check(const char* name, const Link& link) {
  TORCH_CHECK_VALUE(link.alpha_ns >= 0 && link.beta_ns_per_byte >= 0, "the link ", name,
                    " nodes has alpha = ", link.alpha_ns, " ns and beta = ", link.beta_ns_per_byte,
                    " ns a byte, but no message takes negative time");
}

NcclWorld nccl_world(const Topology& topology, std::int64_t world_size) {
  const Shape shape(topology, world_size);
  return {.machine = topology.nccl,
          .ranks = world_size,
          .nodes = static_cast<std::int64_t>(shape.n),
          .bytes_per_ns = 1 / shape.slowest_beta()};
}

// A reduce-scatter or an all-gather, of so many bytes of each rank: half an all-reduce.
std::int64_t half_ns(const Topology& topology, double part, std::int64_t world_size) {
  const Shape shape(topology, world_size);
  const double ns = topology.algorithm == AllReduce::kNccl
                        ? nccl_half_ns(nccl_world(topology, world_size), part * shape.p)
                        : shape.ring_latency() + (shape.p - 1) * part * shape.slowest_beta();
  return std::llround(ns) + (world_size > 1 ? topology.overhead_ns : 0);
}

}  // namespace

NcclChoice nccl_choice(const Topology& topology, std::int64_t bytes, std::int64_t world_size) {
  return nccl_all_reduce(nccl_world(topology, world_size), static_cast<double>(bytes));
}

std::int64_t all_reduce_ns(const Topology& topology, std::int64_t bytes, std::int64_t world_size) {
  const auto size = static_cast<double>(bytes);
  const double ns = topology.algorithm == AllReduce::kNccl
                        ? nccl_choice(topology, bytes, world_size).ns
                        : Shape(topology, world_size).ring(size);
  return std::llround(ns) + (world_size > 1 ? topology.overhead_ns : 0);
}

std::int64_t cost_ns(const Topology& topology, c10d::OpType operation, std::int64_t bytes,
                     std::int64_t world_size) {
  using c10d::OpType;
  const Shape shape(topology, world_size);
  switch (operation) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      return all_reduce_ns(topology, bytes, world_size);
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
      return half_ns(topology, static_cast<double>(bytes), world_size);
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      return half_ns(topology, static_cast<double>(bytes) / shape.p, world_size);
    default:
      break;
  }
  return ddp::cost_ns({.alpha_ns = std::max(shape.inside.alpha_ns, shape.between.alpha_ns),
                       .beta_ns_per_byte = shape.slowest_beta()},
                      operation, bytes, static_cast<int>(world_size));
}

void check(const Topology& topology) {
  TORCH_CHECK_VALUE(topology.gpus_per_node > 0, "a node has ", topology.gpus_per_node,
                    " GPUs, but needs at least one");
  check("inside", topology.inside);
  check("between", topology.between);
}

}  // namespace ddp::cluster
