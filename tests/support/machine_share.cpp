#include "support/machine_share.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "support/settings.h"

namespace ddp::testing {

MachineShare::MachineShare(Mode mode)
    : file_(settings().machine.empty() ? -1
                                       : open(settings().machine.c_str(), O_RDONLY | O_CLOEXEC)) {
  flock(file_, mode == Mode::kAlone ? LOCK_EX : LOCK_SH);
}

// Unlocked for all: a rank that is just being started has a copy of the descriptor.
MachineShare::~MachineShare() {
  flock(file_, LOCK_UN);
  close(file_);
}

}  // namespace ddp::testing
