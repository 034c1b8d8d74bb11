#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/ranks/rank_process.h"

// What a parent does with the output of its ranks.

namespace ddp {

/// Keeps the beginning and the end of a text of any length: 8 KiB each.
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

/// Puts frames together again from the bytes of a pipe. Bytes that are no frame end the reading.
class FrameReader {
 public:
  void append(std::string_view bytes);
  std::optional<Frame> next();

 private:
  std::string bytes_;
  bool broken_ = false;
};

/// Hands over what a non-blocking descriptor has to give now. Closes it at its end, which poll()
/// would otherwise report for ever.
void drain(FileDescriptor& fd, const std::function<void(std::string_view)>& take);

/// An address in a loaded file.
struct StackFrame {
  std::string module;
  std::string offset;
  std::string symbol;
};
StackFrame parse_stack_frame(const std::string& text);

/// The frames as a person reads them, "assignments/01_naive_ddp/naive_ddp.cpp:42 in finish()":
/// those of the stage's library if there are any, else those of the lab's own code; at most four,
/// innermost first.
std::vector<std::string> name_places(const std::vector<StackFrame>& stack);

/// Why a process may have exited with `code` before its time; `log` is what it printed.
std::string explain_exit(int code, const std::string& log);

}  // namespace ddp
