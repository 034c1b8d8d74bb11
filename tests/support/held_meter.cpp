#include "support/held_meter.h"

#include <filesystem>
#include <iterator>

namespace ddp::testing {

namespace fs = std::filesystem;

void HeldMeter::count(Client& client) const {
  client.settle();
  std::int64_t references = 0;
  for (const at::Tensor& parameter : parameters_) {
    references += static_cast<std::int64_t>(parameter.grad().use_count());
  }
  client.fact("held: handles of operations", client.live_handles());
  client.fact("held: references to gradients", references);
  client.fact("held: bytes of tensors", meter_.live_bytes());
  client.fact("held: bytes of the heap", heap_bytes());
  client.fact("held: threads",
              std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

}  // namespace ddp::testing
