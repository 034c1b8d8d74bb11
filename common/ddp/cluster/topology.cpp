#include "ddp/cluster/topology.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "ddp/network_model.h"

namespace ddp::cluster {

namespace {

// A world on a topology, in the letters of the formulas.
struct Shape {
  double p, n, g;
  Link inside, between;

  Shape(const Topology& topology, std::int64_t world_size)
      : p(static_cast<double>(world_size)),
        n(std::ceil(p / static_cast<double>(topology.gpus_per_node))),
        g(static_cast<double>(std::min(topology.gpus_per_node, world_size))),
        inside(g > 1 ? topology.inside : Link{}),
        between(n > 1 ? topology.between : Link{}) {}

  double alpha_inside() const { return static_cast<double>(inside.alpha_ns); }
  double alpha_between() const { return static_cast<double>(between.alpha_ns); }
  double slowest_beta() const {
    return std::max(inside.beta_ns_per_byte, between.beta_ns_per_byte);
  }
  bool is_even() const { return n * g == p; }

  double ring(double bytes) const {
    return 2 * (p - n) * alpha_inside() + 2 * (n - 1) * alpha_between() +
           2 * (p - 1) / p * (bytes * slowest_beta());
  }
  double tree(double bytes) const {
    return 2 * (g - 1) * alpha_inside() + 2 * std::ceil(std::log2(n)) * alpha_between() +
           (p > 1 ? 2 * bytes * slowest_beta() : 0);
  }
  double hierarchical(double bytes) const {
    const auto ring_of = [bytes](const Link& link, double ranks) {
      return 2 * (ranks - 1) * static_cast<double>(link.alpha_ns) +
             2 * (ranks - 1) / ranks * (bytes * link.beta_ns_per_byte);
    };
    return ring_of(inside, g) + ring_of(between, n);
  }
};

double all_reduce(const Shape& shape, AllReduce algorithm, double bytes) {
  switch (algorithm) {
    case AllReduce::kRing:
      return shape.ring(bytes);
    case AllReduce::kTree:
      return shape.tree(bytes);
    case AllReduce::kHierarchical:
      TORCH_CHECK_VALUE(shape.is_even(),
                        "a hierarchical all-reduce needs as many ranks on each "
                        "node, but ",
                        shape.p, " ranks fill nodes of ", shape.g, " and a part");
      return shape.hierarchical(bytes);
    case AllReduce::kBest:
      break;
  }
  const double flat = std::min(shape.ring(bytes), shape.tree(bytes));
  return shape.is_even() ? std::min(flat, shape.hierarchical(bytes)) : flat;
}

void check(const char* name, const Link& link) {
  TORCH_CHECK_VALUE(link.alpha_ns >= 0 && link.beta_ns_per_byte >= 0, "the link ", name,
                    " nodes has alpha = ", link.alpha_ns, " ns and beta = ", link.beta_ns_per_byte,
                    " ns a byte, but no message takes negative time");
}

}  // namespace

std::int64_t all_reduce_ns(const Topology& topology, std::int64_t bytes, std::int64_t world_size) {
  return std::llround(
      all_reduce(Shape(topology, world_size), topology.algorithm, static_cast<double>(bytes)));
}

std::int64_t cost_ns(const Topology& topology, c10d::OpType operation, std::int64_t bytes,
                     std::int64_t world_size) {
  if (operation == c10d::OpType::ALLREDUCE || operation == c10d::OpType::ALLREDUCE_COALESCED) {
    return all_reduce_ns(topology, bytes, world_size);
  }
  const Shape shape(topology, world_size);
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
