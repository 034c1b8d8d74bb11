#pragma once

#include <string>

// `make debug`: gdb on one rank of one body. tools/grading/other_ways/debug.py starts it.

namespace ddp::testing {

/// Which rank of which body waits for gdb, and the folder with the two pipes by which they meet.
struct Debugged {
  std::string folder;  // empty: nobody debugs
  std::string body;
  int rank = 0;
};

/// Written once, when the program starts.
Debugged& debugged();

/// In a rank that has loaded the stage: if it is the one, writes its process id to <folder>/rank, and
/// returns when gdb has attached to it and something can be read from <folder>/go.
void await_debugger(const std::string& body, int rank);

}  // namespace ddp::testing
