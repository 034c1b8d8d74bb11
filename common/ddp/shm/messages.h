#pragma once

#include <memory>

#include "ddp/shm/transfers.h"

namespace ddp {

/// The transfer of a send or recv. Throws c10::Error for a tag beyond SharedMemory::kTags.
std::unique_ptr<Transfer> make_message(const Operation& operation, SharedMemory& memory);

}  // namespace ddp
