#pragma once

#include <memory>

#include "ddp/shm/transfers.h"

namespace ddp {

/// The transfer of a collective. Throws c10::Error for one that shared memory does not have.
std::unique_ptr<Transfer> make_collective(const Operation& operation, SharedMemory& memory);

}  // namespace ddp
