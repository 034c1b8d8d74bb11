#include "models/profiles/hardware.h"

#include <c10/util/Exception.h>

#include "models/named.h"

namespace ddp {
namespace {

constexpr std::int64_t kLaunchNs = 5'000;

using Generation = cluster::NcclMachine::Generation;

struct NamedGpu {
  const char* name;
  Generation generation;
  std::int64_t multiprocessors;
  double fp32, tf32, bf16;  // operations a second, without sparsity; 0: there is none
  double bytes_per_second;
  const char* source;
};

constexpr Generation kVolta = Generation::kVolta, kAmpere = Generation::kAmpere,
                     kHopper = Generation::kHopper;
constexpr NamedGpu kGpus[] = {
    {"V100", kVolta, 80, 15.7e12, 0, 0, 900e9,
     "NVIDIA V100 Tensor Core GPU, data sheet: SXM2; single precision"},
    {"A100", kAmpere, 108, 19.5e12, 156e12, 312e12, 2039e9,
     "NVIDIA A100 Tensor Core GPU, data sheet: 80 GB SXM"},
    {"H100", kHopper, 132, 67e12, 494.5e12, 989e12, 3350e9,
     "NVIDIA H100 Tensor Core GPU, data sheet: SXM, half of what it says with sparsity"},
    {"A4000", kAmpere, 48, 19.2e12, 0, 0, 448e9, "NVIDIA RTX A4000, data sheet: single precision"},
    {"T4", kVolta, 40, 8.1e12, 0, 0, 320e9, "NVIDIA T4, data sheet: single precision"},
    {"P100", kVolta, 56, 10.6e12, 0, 0, 732e9,
     "NVIDIA Tesla P100, data sheet: SXM2, single precision"},
    {"H20", kHopper, 78, 44e12, 74e12, 148e12, 4000e9, "NVIDIA H20, data sheet: SXM"},
    {"H200", kHopper, 132, 67e12, 494.5e12, 989e12, 4800e9,
     "NVIDIA H200 Tensor Core GPU, data sheet: SXM, half of what it says with sparsity"},
    {"GH200", kHopper, 132, 67e12, 494.5e12, 990e12, 4000e9,
     "NVIDIA GH200 Grace Hopper Superchip, data sheet: 96 GB HBM3, half of what it says with "
     "sparsity"},
    {"RTX_PRO_6000", kHopper, 188, 125e12, 250e12, 500e12, 1792e9,
     "NVIDIA RTX PRO 6000 Blackwell Workstation Edition, data sheet: single precision; of its 4000 "
     "AI TOPS, FP4 with sparsity, an eighth and a sixteenth"},
};

struct NamedLink {
  const char* name;
  std::int64_t alpha_ns;
  double bytes_per_second;  // in one direction
  const char* source;
};

// NVLinks are those of one GPU; nvswitch ones add what NCCL makes of the switch.
constexpr std::int64_t kNvlinkNs = 3'400, kPcieNs = 5'700, kNetworkNs = 14'000;
constexpr NamedLink kLinks[] = {
    {"pcie3", kPcieNs, 15.75e9, "PCI Express Base Specification 3.0: 16 lanes"},
    {"pcie4", kPcieNs, 31.5e9, "PCI Express Base Specification 4.0: 16 lanes"},
    {"pcie5", kPcieNs, 63e9, "PCI Express Base Specification 5.0: 16 lanes"},
    {"nvlink1", kNvlinkNs, 80e9, "NVIDIA Tesla P100, data sheet: 160 GB/s in both directions"},
    {"nvlink2", kNvlinkNs, 150e9, "NVIDIA V100, data sheet: 300 GB/s in both directions"},
    {"nvlink3", kNvlinkNs, 300e9, "NVIDIA A100, data sheet: 600 GB/s in both directions"},
    {"nvlink4", kNvlinkNs, 450e9, "NVIDIA H100, data sheet: 900 GB/s in both directions"},
    {"nvswitch2", kNvlinkNs, 150e9, "NVIDIA DGX-2, data sheet: 300 GB/s of each GPU"},
    {"nvswitch3", kNvlinkNs, 300e9, "NVIDIA DGX A100, data sheet: 600 GB/s of each GPU"},
    {"nvswitch4", kNvlinkNs, 450e9, "NVIDIA DGX H100, data sheet: 900 GB/s of each GPU"},
    {"ethernet10", kNetworkNs, 1.25e9, "IEEE 802.3: 10 Gbit/s"},
    {"infiniband100", kNetworkNs, 12.5e9, "NVIDIA ConnectX-5, data sheet: EDR, 100 Gbit/s"},
    {"infiniband200", kNetworkNs, 25e9, "NVIDIA ConnectX-6, data sheet: HDR, 200 Gbit/s"},
    {"infiniband400", kNetworkNs, 50e9, "NVIDIA ConnectX-7, data sheet: NDR, 400 Gbit/s"},
    {"infiniband4x100", kNetworkNs, 50e9, "four NVIDIA ConnectX-5 in a machine"},
};

}  // namespace

const std::vector<std::string>& known_gpus() {
  static const std::vector<std::string> names = names_of(kGpus);
  return names;
}

const std::vector<std::string>& known_precisions() {
  static const std::vector<std::string> names = {"fp32", "tf32", "bf16"};
  return names;
}

cluster::Device known_gpu(const std::string& name, const std::string& precision) {
  const NamedGpu& gpu = named(name, kGpus, "GPU");
  const double lower = precision == "bf16" ? gpu.bf16 : precision == "tf32" ? gpu.tf32 : 0;
  TORCH_CHECK_VALUE(precision != "bf16" || lower > 0, "the lab knows no bf16 of a ", name,
                    "; give --precision fp32");
  return {.name = gpu.name,
          .flops_per_second = lower > 0 ? lower : gpu.fp32,
          .bytes_per_second = gpu.bytes_per_second,
          .launch_ns = kLaunchNs,
          .multiprocessors = gpu.multiprocessors,
          .tensor_cores = lower > 0,
          .source = gpu.source};
}

Generation generation_of(const std::string& gpu) { return named(gpu, kGpus, "GPU").generation; }

const std::vector<std::string>& known_links() {
  static const std::vector<std::string> names = names_of(kLinks);
  return names;
}

std::string source_of_link(const std::string& name) { return named(name, kLinks, "link").source; }

cluster::Link known_link(const std::string& name) {
  const NamedLink& link = named(name, kLinks, "link");
  return {.alpha_ns = link.alpha_ns, .beta_ns_per_byte = 1e9 / link.bytes_per_second};
}

}  // namespace ddp
