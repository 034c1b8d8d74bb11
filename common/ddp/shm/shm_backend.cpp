#include "ddp/shm/shm_backend.h"

#include <utility>

#include "ddp/ranks/launch.h"
#include "ddp/shm/shm_progress.h"
#include "ddp/shm/transfers.h"

namespace ddp {
namespace {

class ShmBackend : public OperationBackend {
 public:
  ShmBackend(const StorePtr& store, int rank, int world_size, std::chrono::milliseconds timeout)
      : OperationBackend(rank, world_size),
        memory_(store, rank, world_size),
        progress_(memory_, timeout) {}

  const std::string getBackendName() const override { return "shm"; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return memory_.me().posted; }

  WorkPtr run(Operation operation) override {
    auto transfer = operation.is_message() ? make_message(operation, memory_)
                                           : make_collective(operation, memory_);
    auto work = c10::make_intrusive<ShmWork>(operation, std::move(transfer), progress_);
    progress_.launch(queue_key(operation), work);
    return work;
  }

 private:
  SharedMemory memory_;
  ShmProgress progress_;  // last: its thread uses the memory
};

}  // namespace

BackendPtr make_shm_backend(const RankContext& context, std::chrono::milliseconds timeout) {
  TORCH_CHECK(placement_of(context).one_machine,
              "shared memory joins ranks of one machine, and these run on several; take --backend "
              "gloo");
  BackendPtr backend = c10::make_intrusive<ShmBackend>(store_for_next_backend(context),
                                                       context.rank, context.world_size, timeout);
  keep_to_own_cores(context.rank, context.world_size);
  return backend;
}

}  // namespace ddp
