#include "ddp/ranks/rank_child.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <utility>

namespace ddp {

namespace {

// More than anyone reads; a failing expectation in a loop may send any number.
constexpr std::size_t kMessagesKept = 1'000;
// Several stacks; each frame may cost a look at debug information.
constexpr std::size_t kFramesKept = 200;

void take_frames(Child& child) {
  while (auto frame = child.frames.next()) {
    RankReport& result = child.result;
    switch (frame->kind) {
      case FrameKind::kMessage:
        if (result.messages.size() < kMessagesKept) {
          result.messages.push_back(std::move(frame->text));
        }
        break;
      case FrameKind::kStack:
        if (child.stack.size() < kFramesKept) {
          child.stack.push_back(parse_stack_frame(frame->text));
        }
        break;
      case FrameKind::kFinished:
        child.body_returned = frame->text == child.token;
        break;
      case FrameKind::kThrew:
      case FrameKind::kNotImplemented:
      case FrameKind::kPeerGone:
        result.outcome =
            frame->kind == FrameKind::kPeerGone ? RankOutcome::kStopped : RankOutcome::kThrew;
        result.not_implemented = frame->kind == FrameKind::kNotImplemented;
        result.reason = std::move(frame->text);
        child.reported = true;
        break;
    }
  }
}

}  // namespace

void take_output(Child& child) {
  drain(child.log, [&](std::string_view text) {
    child.text.append(text);
    child.printed += text.size();
  });
  drain(child.report, [&](std::string_view bytes) {
    child.frames.append(bytes);
    take_frames(child);
  });
}

void judge(Child& child, int status) {
  RankReport& result = child.result;
  if (child.reported || (child.body_returned && status == 0)) {
    return;
  }
  if (child.stop_requested) {
    return;  // the outcome was set when it was stopped
  }
  if (WIFSIGNALED(status)) {
    result.outcome = RankOutcome::kSignalled;
    result.reason = "signal " + std::to_string(WTERMSIG(status)) + " (SIG" +
                    sigabbrev_np(WTERMSIG(status)) + ", " + strsignal(WTERMSIG(status)) + ")";
    if (WTERMSIG(status) == SIGKILL) {
      result.reason += "; the kernel does so when memory runs out";
    }
    return;
  }
  result.outcome = RankOutcome::kExited;
  result.reason = explain_exit(WEXITSTATUS(status), child.text.str());
}

}  // namespace ddp
