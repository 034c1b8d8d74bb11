#pragma once

#include <string>
#include <vector>

#include "ddp/cluster/hardware.h"

namespace ddp {

const std::vector<std::string>& known_gpus();

/// "fp32", "tf32", "bf16": what matrix products compute in. Before Ampere there is no TF32, and
/// tensors in half precision are not simulated: bf16 is autocast's, gradients stay in float32.
const std::vector<std::string>& known_precisions();

/// A GPU as its data sheet describes it, sparsity left out, and its streaming multiprocessors. A
/// launch is assumed to take 5 us. Throws c10::ValueError, listing the known names, for any other.
cluster::Device known_gpu(const std::string& name, const std::string& precision = "tf32");

/// What NCCL's tables call it.
cluster::NcclMachine::Generation generation_of(const std::string& gpu);

/// What a kernel, launched in time, is assumed to take beside its work. It is the time from a short one to the next in
/// NVIDIA's "Getting Started with CUDA Graphs" ("3.8 us (vs 2.9 us kernel execution time)", as quoted by public notes),
/// of a kernel that moves 4 MB within a V100's cache: how much of the 2.9 us is work is not said there.
constexpr double kKernelNs = 3'800;

const std::vector<std::string>& known_links();

/// What connects GPUs, or machines, at its peak in one direction: bytes as its specification says,
/// the latency of a message as NCCL's model of its ring has it (src/graph/tuning.cc, protocol
/// Simple). Throws c10::ValueError, listing the known names, for any other.
cluster::Link known_link(const std::string& name);

/// The data sheet or specification that a link's number comes from.
std::string source_of_link(const std::string& name);

}  // namespace ddp
