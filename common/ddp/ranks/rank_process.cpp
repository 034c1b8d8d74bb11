#include "ddp/ranks/rank_process.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <utility>

#include "ddp/ranks/exceptions.h"

namespace ddp {

namespace {

// Where the signal handlers write. A handler takes no such argument, so this must be global; it is
// set once, in the child.
int crash_report_fd = -1;

// The instruction at which a signal came; null on machines that call it something else.
const void* interrupted_at(const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#else
  return nullptr;
#endif
}

// Neither backtrace() nor snprintf() is guaranteed to be safe in a handler. The process is lost
// anyway: at worst it dies without reporting a stack, or is killed at the deadline. `interrupted` is
// where a signal came, if one did.
void report_frames(std::span<void* const> frames, const void* interrupted = nullptr) {
  for (void* const frame : frames) {
    std::array<char, 1024> line{};
    // A return address points to the instruction after the call; the byte before belongs to the
    // call. The interrupted instruction may be the first of its function.
    const char* instruction = static_cast<char*>(frame) - (frame == interrupted ? 0 : 1);
    if (const std::string_view text = describe_frame(instruction, line); !text.empty()) {
      write_frame(crash_report_fd, FrameKind::kStack, text);
    }
  }
}

void report_stack(void* context) {
  std::array<void*, 64> frames{};
  const int count = backtrace(frames.data(), frames.size());
  report_frames({frames.data(), static_cast<std::size_t>(count)}, interrupted_at(context));
}

void on_crash(int signal, siginfo_t*, void* context) {
  report_stack(context);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void on_stack_request(int, siginfo_t*, void* context) { report_stack(context); }

// exit() would go on to destroy what is the parent's, of which some lies in memory that forks leave out.
void leave_the_parents_alone(int code, void*) {
  std::fflush(nullptr);
  _exit(code);
}

void install_handlers(int report_fd) {
  crash_report_fd = report_fd;
  // Handlers run on a stack of their own: endless recursion leaves them no other.
  // Aligned, as AddressSanitizer demands of every stack.
  alignas(std::max_align_t) static std::array<char, 1 << 16> alternate_stack;
  stack_t stack{};
  stack.ss_sp = alternate_stack.data();
  stack.ss_size = alternate_stack.size();
  sigaltstack(&stack, nullptr);

  struct sigaction action {};
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  action.sa_sigaction = on_crash;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS}) {
    sigaction(signal, &action, nullptr);
  }
  action.sa_flags |= SA_RESTART;
  action.sa_sigaction = on_stack_request;
  sigaction(stack_request_signal(), &action, nullptr);
  // The first call loads a library, which should not happen in a handler.
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);
  remember_throws();
  on_exit(leave_the_parents_alone, nullptr);
}

// Below are the standard ones, the report, and the store or the bell.
constexpr int kFirstFree = 5;

// Gives the rank a process group, its own log, no terminal, and none of the parent's other
// descriptors.
RankProcess isolate(RankProcess process) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != process.parent) {
    _exit(1);  // the parent died before the prctl()
  }
  setpgid(0, 0);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);

  // First moved above those that they will get, so that none is overwritten before it is moved.
  const int report = fcntl(process.report_fd, F_DUPFD, kFirstFree);
  int& other_fd = process.store_fd >= 0 ? process.store_fd : process.bell_fd;
  const int other = fcntl(other_fd, F_DUPFD, kFirstFree);
  if (report < 0 || other < 0) {
    write_frame(process.report_fd, FrameKind::kThrew,
                std::string("there is no descriptor left for it: ") + std::strerror(errno));
    _exit(1);
  }
  if (process.log_fd >= 0) {
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(process.log_fd, STDOUT_FILENO);
    dup2(process.log_fd, STDERR_FILENO);
  }
  process.report_fd = dup2(report, 3);
  other_fd = dup2(other, 4);
  close_range(kFirstFree, ~0U, 0);
  return process;
}

void run_function(const RankProcess& process, const ForkOptions& options,
                  const RankFunction& function) {
  at::set_num_threads(options.threads_per_rank);
  // Not destroyed: a store that goes opens its file once more, which a rank that is confined, or has
  // no descriptors left, cannot.
  static RankContext context;
  context.rank = process.rank;
  context.world_size = options.world_size;
  context.forked = true;
  context.bell = process.bell_fd;
  if (process.store_fd >= 0) {
    context.store = c10::make_intrusive<c10d::FileStore>(
        "/proc/self/fd/" + std::to_string(process.store_fd), options.world_size);
  }
  context.send_to_parent = [fd = process.report_fd](const std::string& text) {
    write_frame(fd, FrameKind::kMessage, text);
  };
  function(context);
}

// The frame for an exception. Gloo throws if the process at the other end of a connection has
// ended; that process's own report says why, so it takes precedence.
std::pair<FrameKind, std::string> outcome_of_exception(std::string_view what) {
  for (const char* lost : {"Connection closed by peer", "Connection reset by peer"}) {
    if (what.find(lost) != std::string_view::npos) {
      return {FrameKind::kPeerGone, "its connection to another rank was closed"};
    }
  }
  return {FrameKind::kThrew, std::string(what)};
}

// The frame that tells the parent how the function ended.
std::pair<FrameKind, std::string> outcome_of_function(const RankProcess& process,
                                                      const ForkOptions& options,
                                                      const RankFunction& function) {
  try {
    run_function(process, options, function);
    return {FrameKind::kFinished, process.token};
  } catch (const PeerGone& error) {
    return {FrameKind::kPeerGone, error.what_without_backtrace()};
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    return is_stub_error(error) ? std::pair{FrameKind::kNotImplemented, what}
                                : outcome_of_exception(what);
  } catch (const std::bad_alloc&) {
    return {FrameKind::kThrew, "std::bad_alloc: there is no memory of the size that it asked for"};
  } catch (const std::exception& error) {
    return outcome_of_exception(error.what());
  } catch (...) {
    return {FrameKind::kThrew, what_was_thrown()};
  }
}

}  // namespace

std::string_view describe_frame(const void* instruction, std::span<char> buffer) {
  Dl_info info{};
  if (dladdr(instruction, &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  const auto offset =
      static_cast<const char*>(instruction) - static_cast<const char*>(info.dli_fbase);
  const int length = std::snprintf(buffer.data(), buffer.size(), "%s %lx %s", info.dli_fname,
                                   static_cast<unsigned long>(offset),
                                   info.dli_sname != nullptr ? info.dli_sname : "?");
  return {buffer.data(), std::min<std::size_t>(length, buffer.size() - 1)};
}

void write_frame(int fd, FrameKind kind, std::string_view text) {
  text = text.substr(0, kLongestFrame);
  std::array<char, 5> header{static_cast<char>(kind)};
  const auto length = static_cast<std::uint32_t>(text.size());
  std::memcpy(header.data() + 1, &length, sizeof(length));
  for (std::string_view rest : {std::string_view(header.data(), header.size()), text}) {
    while (!rest.empty()) {
      const ssize_t written = write(fd, rest.data(), rest.size());
      if (written < 0 && errno != EINTR) {
        return;
      }
      rest.remove_prefix(std::max<ssize_t>(written, 0));
    }
  }
}

int stack_request_signal() { return SIGRTMIN + 3; }

void run_rank(RankProcess process, const ForkOptions& options, const RankFunction& function) {
  process = isolate(std::move(process));
  install_handlers(process.report_fd);
  const auto [kind, text] = outcome_of_function(process, options, function);
  std::fflush(nullptr);
  if (kind == FrameKind::kThrew || kind == FrameKind::kPeerGone) {
    report_frames(last_throw());
  }
  write_frame(process.report_fd, kind, text);
  // Skips destructors of globals: threads of libtorch may still use them, and the parent's must not
  // run twice.
  _exit(kind == FrameKind::kFinished ? 0 : 1);
}

}  // namespace ddp
