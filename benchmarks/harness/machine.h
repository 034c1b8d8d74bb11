#pragma once

#include <string>

// What this machine is, for the provenance of what is measured on it.

namespace ddp {

std::string host_name();

/// The processor's model, or "unknown".
std::string cpu_name();

/// The models of the NVIDIA GPUs, "A, A", or "none".
std::string gpu_names();

}  // namespace ddp
