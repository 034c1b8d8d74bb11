#pragma once

#include <memory_resource>

namespace ddp {

/// Memory that forked processes do not have; for few and large blocks. What the referee keeps of all
/// runs would otherwise make every fork slower, as the kernel copies its page tables, and then each
/// page that is written. Copies of containers in it are in ordinary memory.
std::pmr::memory_resource* own_memory();

}  // namespace ddp
