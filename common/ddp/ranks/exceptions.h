#pragma once

#include <c10/util/Exception.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ddp {

/// Thrown in a rank that waits for another rank which has ended. As with any backend, failed
/// communication is a c10::Error.
class PeerGone : public c10::Error {
 public:
  explicit PeerGone(std::string text)
      : c10::Error({__func__, __FILE__, __LINE__}, std::move(text)) {}
};

/// True for the exception of a stub. libtorch throws c10::NotImplementedError, too, where an operator
/// lacks a dtype.
inline bool is_stub_error(const c10::Error& error) {
  return dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr &&
         std::string_view(error.what_without_backtrace()).find("TODO(student)") !=
             std::string_view::npos;
}

/// What an exception says, without libtorch's stack.
inline std::string what_of(const std::exception& error) {
  const auto* const ours = dynamic_cast<const c10::Error*>(&error);
  return ours != nullptr ? ours->what_without_backtrace() : error.what();
}

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
