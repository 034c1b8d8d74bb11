#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ddp/cluster/hardware.h"

namespace ddp::cluster {

namespace {

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
  explicit Model(const NcclWorld& world)
      : machine_(world.machine),
        ranks_(static_cast<double>(world.ranks)),
        nodes_(static_cast<double>(world.nodes)),
        wire_(machine_.nvlink ? kNvlink : kPci),
        bandwidth_(world.bytes_per_ns) {}

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

}  // namespace

NcclChoice nccl_all_reduce(const NcclWorld& world, double bytes) {
  if (world.ranks == 1) {
    return {};
  }
  const Model model(world);
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

double nccl_half_ns(const NcclWorld& world, double bytes) {
  if (world.ranks == 1) {
    return 0;
  }
  const Model model(world);
  double best = std::numeric_limits<double>::infinity();
  for (const Protocol protocol : {kLl, kLl128, kSimple}) {
    best =
        model.has(protocol) ? std::min(best, model.ring_ns(bytes, protocol, /*rounds=*/1)) : best;
  }
  return best;
}

}  // namespace ddp::cluster
