#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "ddp/ranks/rank_output.h"
#include "ddp/ranks/rank_process.h"
#include "ddp/ranks/rank_report.h"

// The parent's side of one rank of fork_ranks().

namespace ddp {

/// One rank as its parent sees it.
struct Child {
  pid_t pid = -1;
  FileDescriptor process;  // readable when the process has ended
  FileDescriptor log;
  FileDescriptor report;
  std::string token;
  BoundedText text;
  std::uint64_t printed = 0;  // bytes
  FrameReader frames;
  std::vector<StackFrame> stack;
  RankReport result;
  bool body_returned = false;
  bool reported = false;
  bool stop_requested = false;

  bool running() const { return pid > 0; }
};

/// Reads what the rank has written since the last call.
void take_output(Child& child);

/// Sets the outcome of a rank whose process has ended with `status`, as returned by waitpid().
void judge(Child& child, int status);

}  // namespace ddp
