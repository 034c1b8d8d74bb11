#pragma once

#include <span>

namespace ddp {

/// From now on this process remembers where it last threw an exception. An exception says what is
/// wrong, as "map::at" does, and not where; the stack that would is gone when it is caught.
void remember_throws();

/// The return addresses of the last throw, innermost first; empty if there was none.
std::span<void* const> last_throw();

}  // namespace ddp
