#include "models/profiles/hardware.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <array>

namespace ddp {
namespace {

constexpr std::int64_t kLaunchNs = 5'000;

const std::vector<cluster::Device>& gpus() {
  static const std::vector<cluster::Device> all = {
      {"V100", 15.7e12, 900e9, kLaunchNs, 1,
       "NVIDIA V100 Tensor Core GPU, data sheet: SXM2, single precision"},
      {"A100", 156e12, 2039e9, kLaunchNs, 1,
       "NVIDIA A100 Tensor Core GPU, data sheet: 80 GB SXM, TF32 without sparsity"},
      {"H100", 494.5e12, 3350e9, kLaunchNs, 1,
       "NVIDIA H100 Tensor Core GPU, data sheet: SXM, half of TF32 with sparsity"},
      {"A4000", 19.2e12, 448e9, kLaunchNs, 1, "NVIDIA RTX A4000, data sheet: single precision"},
  };
  return all;
}

struct NamedLink {
  const char* name;
  std::int64_t alpha_ns;
  double bytes_per_second;  // in one direction
};

constexpr std::int64_t kNvlinkNs = 3'400, kPcieNs = 5'700, kNetworkNs = 14'000;
constexpr std::array<NamedLink, 7> kLinks = {{
    {"pcie3", kPcieNs, 15.75e9},  // 16 lanes
    {"pcie4", kPcieNs, 31.5e9},   // 16 lanes
    {"nvlink2", kNvlinkNs, 150e9},
    {"nvlink3", kNvlinkNs, 300e9},
    {"nvlink4", kNvlinkNs, 450e9},
    {"ethernet10", kNetworkNs, 1.25e9},
    {"infiniband4x100", kNetworkNs, 50e9},
}};

template <typename All>
std::vector<std::string> names_of(const All& all) {
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const auto& one : all) {
    names.emplace_back(one.name);
  }
  return names;
}

template <typename All>
const auto& named(const std::string& name, const All& all, const char* kind) {
  for (const auto& one : all) {
    if (one.name == name) {
      return one;
    }
  }
  TORCH_CHECK_VALUE(false, "unknown ", kind, " \"", name,
                    "\"; there are: ", c10::Join(", ", names_of(all)));
}

}  // namespace

const std::vector<std::string>& known_gpus() {
  static const std::vector<std::string> names = names_of(gpus());
  return names;
}

cluster::Device known_gpu(const std::string& name) { return named(name, gpus(), "GPU"); }

const std::vector<std::string>& known_links() {
  static const std::vector<std::string> names = names_of(kLinks);
  return names;
}

cluster::Link known_link(const std::string& name) {
  const NamedLink& link = named(name, kLinks, "link");
  return {.alpha_ns = link.alpha_ns, .beta_ns_per_byte = 1e9 / link.bytes_per_second};
}

}  // namespace ddp
