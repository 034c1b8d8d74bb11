#pragma once

#include <string>

// A description of this machine, for the provenance of results.

namespace ddp {

std::string host_name();

/// The processor's model, or "unknown".
std::string cpu_name();

/// The models of the NVIDIA GPUs, "A, A", or "none".
std::string gpu_names();

}  // namespace ddp
