#include "ddp/cluster/hardware.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ddp/network_model.h"

namespace ddp::cluster {

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

// NCCL's tables, in microseconds and GB/s, each by protocol: LL, LL128, Simple.
using ByProtocol = std::array<double, 3>;
constexpr std::array kProtocols = {"LL", "LL128", "Simple"};
enum Protocol : std::uint8_t { kLl, kLl128, kSimple };
enum Wire : std::uint8_t { kNvlink, kPci, kNetwork };

constexpr ByProtocol kTreeBase = {6.8, 14, 8.4}, kRingBase = {6.6, 14, 8.4};
constexpr std::array<ByProtocol, 3> kTreeStep = {{{0.6, 1.25, 4}, {1, 1.9, 4}, {5, 8.5, 14}}};
constexpr std::array<ByProtocol, 3> kRingStep = {{{0.6, 1.9, 3.4}, {1, 2.5, 5.7}, {2.7, 4, 14}}};
constexpr double kNvlsStep = 25, kNvlsEfficiency = 0.85;
// The most that LL moves, by generation inside a node, and as Intel's processors let it on 2 and on
// more nodes.
constexpr std::array<double, 3> kMostLl = {39, 87.7, 141};
constexpr double kMostLlOnTwo = 39, kMostLlOnMore = 20.4;
// Posting to a network adapter; Simple does it three times.
constexpr double kPost = 1;
// A tree reaches these parts of its bandwidth, by powers of two from 64 bytes on.
constexpr std::array<std::array<double, 24>, 3> kTreeParts = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
      .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

class Model {
 public:
  Model(const NcclMachine& machine, const Shape& shape)
      : machine_(machine),
        ranks_(shape.p),
        nodes_(shape.n),
        wire_(machine_.nvlink ? kNvlink : kPci),
        bandwidth_(1 / shape.slowest_beta()) {}

  bool has(Protocol protocol) const { return protocol != kLl128 || machine_.nvlink; }
  bool has_nvls() const {
    return machine_.nvswitch && machine_.generation == NcclMachine::kHopper && nodes_ == 1 &&
           ranks_ > 2;
  }

  // An all-reduce goes around twice, a reduce-scatter or an all-gather once.
  double ring_ns(double bytes, Protocol protocol, int rounds = 2) const {
    const double steps = rounds * (ranks_ - 1), between = nodes_ > 1 ? rounds * (nodes_ - 1) : 0;
    const double post = nodes_ > 1 ? kPost * (protocol == kSimple ? 3 : 1) : 0;
    // Alone on their nodes, ranks see the network's whole latency: the tree's.
    const auto& network = ranks_ > nodes_ ? kRingStep[kNetwork] : kTreeStep[kNetwork];
    double latency = kRingBase[protocol] +
                     (steps - between) * std::max(kRingStep[wire_][protocol], post) +
                     between * network[protocol];
    if (rounds == 2 && protocol == kSimple && nodes_ > 1 && bytes / (kChannels * ranks_) >= 64) {
      latency *= machine_.generation == NcclMachine::kVolta ? 1.9 : 1.4;
    }
    const double bus = protocol == kLl      ? std::min(bandwidth_ / 2, most_ll())
                       : protocol == kLl128 ? 0.92 * bandwidth_
                                            : bandwidth_;
    return 1e3 * latency + bytes / (bus * ranks_ / steps);
  }

  double tree_ns(double bytes, Protocol protocol) const {
    const double inside = ranks_ / nodes_ - 1, height = std::floor(std::log2(nodes_));
    const double latency = kTreeBase[protocol] + 2 * (inside * kTreeStep[wire_][protocol] +
                                                      height * kTreeStep[kNetwork][protocol]);
    double bus = 0.92 * bandwidth_;
    if (protocol == kLl) {
      bus = std::min(bus / 3.8, most_ll());
    } else if (protocol == kLl128) {
      bus *= nodes_ == 1 ? 7.0 / 9 : 120.0 / 128;
    }
    const double size = std::floor(std::log2(std::max(bytes, 64.0) / 64));
    bus *= size < 23 ? kTreeParts[protocol][static_cast<std::size_t>(size)] : 1;
    return 1e3 * latency + bytes / (bus / 2);
  }

  // As NCCL takes it to be, whose bandwidth is then more than a link has.
  double nvls_estimated_ns(double bytes) const {
    const double bus = 2 * kNvlsEfficiency * (kChannels - 1) / kChannels * bandwidth_;
    return 1e3 * kNvlsStep + bytes / (bus * ranks_ / (2 * (ranks_ - 1)));
  }

  // As it is: the switch reads all of a rank's elements, and the rank its N-th of the sums, which goes
  // out once and comes in from all: 1 + 1/N of the tensor in either direction.
  double nvls_ns(double bytes) const {
    return 1e3 * kNvlsStep + bytes * (1 + 1 / ranks_) / (kNvlsEfficiency * bandwidth_);
  }

 private:
  static constexpr double kChannels = 16;

  double most_ll() const {
    return nodes_ == 1 ? kMostLl[machine_.generation] : nodes_ == 2 ? kMostLlOnTwo : kMostLlOnMore;
  }

  const NcclMachine machine_;
  const double ranks_, nodes_;
  const Wire wire_;
  const double bandwidth_;  // GB/s, which are bytes a nanosecond
};

// How long a reduce-scatter or an all-gather of `bytes` in all takes: a ring, by the fastest protocol.
// Left out: PAT, which NCCL takes where each node has one rank alone.
double nccl_half_ns(const NcclMachine& machine, const Shape& shape, double bytes) {
  if (shape.p == 1) {
    return 0;
  }
  const Model model(machine, shape);
  double best = std::numeric_limits<double>::infinity();
  for (const Protocol protocol : {kLl, kLl128, kSimple}) {
    best =
        model.has(protocol) ? std::min(best, model.ring_ns(bytes, protocol, /*rounds=*/1)) : best;
  }
  return best;
}

// A reduce-scatter or an all-gather, of so many bytes of each rank: half an all-reduce.
std::int64_t half_ns(const Topology& topology, double part, std::int64_t world_size) {
  const Shape shape(topology, world_size);
  const double ns = topology.algorithm == AllReduce::kNccl
                        ? nccl_half_ns(topology.nccl, shape, part * shape.p)
                        : shape.ring_latency() + (shape.p - 1) * part * shape.slowest_beta();
  return std::llround(ns) + (world_size > 1 ? topology.overhead_ns : 0);
}

}  // namespace

NcclChoice nccl_choice(const Topology& topology, std::int64_t all_bytes, std::int64_t world_size) {
  if (world_size == 1) {
    return {};
  }
  const auto bytes = static_cast<double>(all_bytes);
  const Model model(topology.nccl, Shape(topology, world_size));
  NcclChoice best{.ns = std::numeric_limits<double>::infinity()};
  const auto consider = [&](const char* algorithm, Protocol protocol, double ns) {
    if (ns < best.ns) {
      best = {.algorithm = algorithm, .protocol = kProtocols[protocol], .ns = ns};
    }
  };
  for (const Protocol protocol : {kLl, kLl128, kSimple}) {
    if (model.has(protocol)) {
      consider("ring", protocol, model.ring_ns(bytes, protocol));
      consider("tree", protocol, model.tree_ns(bytes, protocol));
    }
  }
  if (model.has_nvls() && model.nvls_estimated_ns(bytes) < best.ns) {
    return {.algorithm = "NVLS", .protocol = kProtocols[kSimple], .ns = model.nvls_ns(bytes)};
  }
  return best;
}

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
