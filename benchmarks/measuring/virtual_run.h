#pragma once

#include <functional>

#include "ddp/network_model.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "ddp/virtual_time/virtual_time.h"
#include "measuring/benchmark.h"

namespace ddp {

// Programs whose network is simulated: their ranks really run and data really moves; how long that
// would take follows from what they did, see VirtualTime.

/// The backend that results name.
constexpr const char* kSimulatedNetwork = "simulated";

/// Runs `body` in options.world_size forked ranks, then `report`, in this process, on what they did.
/// Returns the program's exit code, like run_benchmark().
int run_in_virtual_time(const BenchmarkOptions& options, const std::function<void(Client&)>& body,
                        const std::function<void(const Evidence&)>& report);

/// The group of all ranks of a body, where it computes.
DeviceContext virtual_context(Client& client);

/// The cost of what ranks have said by Client::compute().
std::int64_t simulated_cost(const Seen& seen, int rank);

}  // namespace ddp
