#include "ddp/launching/process_group.h"

#include <sched.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

// The only file that includes ProcessGroupGloo.hpp: that header needs Gloo's own headers, which
// libtorch does not ship. The few names that it uses are declared in cmake/gloo_declarations.

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

class NoStore : public c10d::Store {
 public:
  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<NoStore>(); }
  void set(const std::string&, const std::vector<std::uint8_t>&) override { refuse(); }
  std::vector<std::uint8_t> get(const std::string&) override { refuse(); }
  std::int64_t add(const std::string&, std::int64_t) override { refuse(); }
  bool deleteKey(const std::string&) override { refuse(); }
  bool check(const std::vector<std::string>&) override { refuse(); }
  std::int64_t getNumKeys() override { refuse(); }
  void wait(const std::vector<std::string>&) override { refuse(); }
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    TORCH_CHECK(false,
                "the group's store was used: ranks may communicate by the operations of the group "
                "alone");
  }
};

}  // namespace

BackendPtr make_gloo_backend(const StorePtr& store, int rank, int world_size,
                             std::chrono::milliseconds timeout, const std::string& address) {
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world_size,
                                                     make_options(timeout, address));
}

ProcessGroupPtr make_process_group(const BackendPtr& backend, const StorePtr& store) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(
      store ? store : StorePtr(c10::make_intrusive<NoStore>()), backend->getRank(),
      backend->getSize());
  // c10d keeps one backend for each device type and backend type. It assumes nothing about a CUSTOM
  // backend, which is right for decorators.
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  group->setBackend(c10::kCPU, custom, backend);
  group->setBackend(c10::kCUDA, custom, backend);
  group->setDefaultBackend(custom);
  return group;
}

}  // namespace ddp
