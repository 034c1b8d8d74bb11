#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ddp/ranks/file_descriptor.h"
#include "ddp/ranks/fork_ranks.h"

// The child's side of fork_ranks(), and the messages between the two.

namespace ddp {

/// A frame from a rank to its parent is one byte for its kind, its length (4 bytes) and its text.
enum class FrameKind : char {
  kMessage = 'm',         // RankContext::send_to_parent
  kFinished = 'f',        // the function returned; the text is the token
  kThrew = 't',           // the function threw; the text is the exception's
  kNotImplemented = 'n',  // the function met a stub
  kPeerGone = 'p',        // the function gave up because another rank had ended
  kStack = 's',           // one frame of the stack: "module offset symbol"
};

/// The longest text of a frame; write_frame() cuts it there.
constexpr std::size_t kLongestFrame = 1 << 20;

/// Writes a whole frame. Does nothing if the parent has gone.
void write_frame(int fd, FrameKind kind, std::string_view text);

/// What the child needs to know before it runs the function.
struct RankProcess {
  int rank = 0;
  int parent = 0;  // its process id
  int log_fd = -1;
  int report_fd = -1;
  int store_fd = -1;
  int bell_fd = -1;  // instead of a store
  /// Known only to the parent and this rank's harness. So code under test that accidentally writes
  /// to the report descriptor, or exits, does not look like a function that returned.
  std::string token;
};

/// Runs the function and ends the process. `store_fd` is a file in memory, so that nothing is left
/// behind.
[[noreturn]] void run_rank(RankProcess process, const ForkOptions& options,
                           const RankFunction& function);

/// The function of an instruction as "module offset symbol", written into the buffer; empty if it is in
/// no loaded file. It takes no memory, so that a signal's handler may call it.
std::string_view describe_frame(const void* instruction, std::span<char> buffer);

/// The signal that makes a rank report its stack and continue.
int stack_request_signal();

}  // namespace ddp
