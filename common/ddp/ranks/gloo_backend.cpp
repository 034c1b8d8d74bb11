// The only file that includes ProcessGroupGloo.hpp: that header needs Gloo's own headers, which
// libtorch does not ship. The few names that it uses are declared in cmake/gloo_declarations.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "ddp/ranks/process_group.h"

namespace ddp {

BackendPtr make_gloo_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout, Reach reach) {
  using Gloo = c10d::ProcessGroupGloo;
  c10::intrusive_ptr<Gloo::Options> options;
  if (reach == Reach::kNetwork) {
    options = Gloo::Options::create_default(timeout);
  } else {
    options = Gloo::Options::create(timeout);
    options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  }
  return c10::make_intrusive<Gloo>(store, rank, world_size, options);
}

}  // namespace ddp
