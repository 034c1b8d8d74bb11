#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/ranks/rank_process.h"

// How the parent of fork_ranks() reads the output of its ranks.

namespace ddp {

/// Keeps the beginning and the end of a long text: 8 KiB each.
class BoundedText {
 public:
  void append(std::string_view text);
  std::string str() const;

 private:
  std::string head_;
  std::string tail_;
  std::uint64_t dropped_ = 0;
};

struct Frame {
  FrameKind kind;
  std::string text;
};

/// Reassembles frames from the bytes of a pipe. It stops at the first bytes that are not a frame.
class FrameReader {
 public:
  void append(std::string_view bytes);
  std::optional<Frame> next();

 private:
  std::string bytes_;
  std::size_t taken_ = 0;  // of them
  bool broken_ = false;
};

/// Passes to `take` what can be read from a non-blocking descriptor now. Closes it at its end,
/// which poll() would otherwise report forever.
void drain(FileDescriptor& fd, const std::function<void(std::string_view)>& take);

/// An address in a loaded file.
struct StackFrame {
  std::string module;
  std::string offset;
  std::string symbol;
};
StackFrame parse_stack_frame(const std::string& text);

/// The frames in readable form, "assignments/01_naive_ddp/naive_ddp.cpp:42 in ddp::make_naive_ddp":
/// those of the stage's library if there are any, else those of the lab's own code; at most four,
/// innermost first. A place that called one of libtorch's operators ends with ", which called
/// aten::view". A rank may claim any frame: only files that `options` allow are looked at.
std::vector<std::string> name_places(const std::vector<StackFrame>& stack,
                                     const ForkOptions& options = {});

/// The same for return addresses in this process.
std::vector<std::string> name_places(std::span<void* const> addresses);

/// Why a process may have exited early with `code`; `log` is what it printed.
std::string explain_exit(int code, const std::string& log, bool untrusted = false);

/// One rank as its parent sees it.
struct Child {
  pid_t pid = -1;
  FileDescriptor process;  // readable when the process has ended
  FileDescriptor log;
  FileDescriptor report;
  FileDescriptor bell;  // by which it wakes a companion
  std::string token;
  bool withhold = false;  // see ForkOptions, as the next
  bool untrusted = false;
  BoundedText text;
  std::uint64_t printed = 0;  // bytes, with those of its report
  FrameReader frames;
  std::vector<StackFrame> stack;
  RankReport result;
  bool returned = false;
  bool said_finished = false;
  bool reported = false;
  bool stop_requested = false;

  bool running() const { return pid > 0; }
};

/// Reads what the rank has written since the last call.
void take_output(Child& child);

/// Sets the outcome of a rank whose process has ended with `status`, as returned by waitpid().
void set_outcome(Child& child, int status);

}  // namespace ddp
