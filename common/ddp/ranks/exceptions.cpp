#include "ddp/ranks/exceptions.h"

#include <c10/util/Type.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <atomic>
#include <typeinfo>

namespace ddp {

namespace {

// __cxa_throw() takes no such argument, so these must be global. Of two threads that throw at once,
// either may be remembered.
std::atomic<bool> remembering{false};
std::array<void*, 64> frames;
std::atomic<int> frame_count{0};

}  // namespace

void remember_throws() { remembering = true; }

void remember_throw_here() {
  if (remembering) {
    frame_count = backtrace(frames.data(), static_cast<int>(frames.size()));
  }
}

std::span<void* const> last_throw() {
  return {frames.data(), static_cast<std::size_t>(frame_count.load())};
}

std::string what_was_thrown() {
  const auto text = [](const std::string& thrown) {
    return "a text, and no std::exception: \"" + thrown + "\"";
  };
  try {
    throw;
  } catch (const char* thrown) {
    return text(thrown);
  } catch (const std::string& thrown) {
    return text(thrown);
  } catch (...) {
    return "something that is no std::exception, of the type " +
           c10::demangle(abi::__cxa_current_exception_type()->name());
  }
}

}  // namespace ddp

// The C++ runtime's function that every `throw` calls. This library comes before the runtime's in the
// order in which the loader looks for it. Compilers declare __cxa_throw with different types, so it
// has another name here.
using Throw = void(void* exception, std::type_info* type, void (*destroy)(void*));
extern "C" Throw observed_throw __asm__("__cxa_throw");

void observed_throw(void* exception, std::type_info* type, void (*destroy)(void*)) {
  static const auto next = reinterpret_cast<Throw*>(dlsym(RTLD_NEXT, "__cxa_throw"));
  ddp::remember_throw_here();
  next(exception, type, destroy);
  __builtin_unreachable();
}
