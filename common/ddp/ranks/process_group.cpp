#include "ddp/ranks/process_group.h"

namespace ddp {

ProcessGroupPtr make_process_group(const BackendPtr& backend, const StorePtr& store) {
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  // c10d keeps one backend for each device type and backend type. It assumes nothing about a CUSTOM
  // backend, which is right for decorators.
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  group->setBackend(c10::kCPU, custom, backend);
  group->setBackend(c10::kCUDA, custom, backend);
  group->setDefaultBackend(custom);
  return group;
}

}  // namespace ddp
