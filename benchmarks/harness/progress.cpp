#include "harness/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace ddp {

Progress::Progress(std::string what, int total)
    : what_(std::move(what)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear_line(); }

void Progress::advance() {
  ++done_;
  const double now = watch_.seconds();
  const double pause = terminal_ ? 0.2 : 10;
  if (now - last_shown_ < pause) {
    return;
  }
  last_shown_ = now;
  clear_line();
  std::fprintf(stderr, "%s: %d of %d, %.0f s left%s", what_.c_str(), skipped_ + done_, total_,
               now / done_ * (total_ - skipped_ - done_), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void Progress::clear_line() const {
  if (terminal_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

}  // namespace ddp
