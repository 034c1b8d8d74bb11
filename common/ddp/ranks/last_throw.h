#pragma once

#include <span>
#include <string>

namespace ddp {

/// From now on this process remembers where it last threw an exception. An exception says what is
/// wrong, as "map::at" does, and not where; the stack that would is gone when it is caught.
void remember_throws();

/// To be called before an exception that was kept is thrown on, which is no throw for the C++ runtime:
/// the place of interest is this one.
void remember_throw_here();

/// To be called in a catch (...): the text that was thrown, as by `throw "no rank"`, or else its type.
std::string what_was_thrown();

/// The return addresses of the last throw, innermost first; empty if there was none.
std::span<void* const> last_throw();

}  // namespace ddp
