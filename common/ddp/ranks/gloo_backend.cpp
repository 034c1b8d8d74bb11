// The only file that includes ProcessGroupGloo.hpp: that header needs Gloo's own headers, which
// libtorch does not ship. The few names that it uses are declared in cmake/gloo_declarations.
#include <sched.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "ddp/ranks/process_group.h"

namespace ddp {
namespace {

// Threads that are started while it lives do not take a core from a thread that runs, but wait for
// the core or for their turn (sched(7), SCHED_BATCH).
//
// Gloo's thread for a device handles an event only if it gets the connection's lock, and else asks
// again at once (Pair::handleEvents()). If the event has just woken it, and it has taken the core of
// the thread that holds the lock, both wait for the end of its time slice: 4 ms for an all-reduce of
// 0.1 ms.
class PatientThreads {
 public:
  PatientThreads() : policy_(sched_getscheduler(0)) {
    sched_getparam(0, &priority_);
    if (policy_ == SCHED_OTHER) {
      sched_setscheduler(0, SCHED_BATCH, &priority_);
    }
  }
  ~PatientThreads() { sched_setscheduler(0, policy_, &priority_); }
  PatientThreads(const PatientThreads&) = delete;
  PatientThreads& operator=(const PatientThreads&) = delete;

 private:
  const int policy_;
  sched_param priority_{};
};

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> make_options(std::chrono::milliseconds timeout,
                                                                 const std::string& address) {
  using Gloo = c10d::ProcessGroupGloo;
  const PatientThreads devices;
  auto options = Gloo::Options::create(timeout);
  options->devices.push_back(Gloo::createDeviceForHostname(address));
  return options;
}

}  // namespace

BackendPtr make_gloo_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout, const std::string& address) {
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world_size,
                                                     make_options(timeout, address));
}

}  // namespace ddp
