#include "support/debugger.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <fstream>

namespace ddp::testing {

Debugged& debugged() {
  static Debugged chosen;
  return chosen;
}

void await_debugger(const std::string& body, int rank) {
  const Debugged& chosen = debugged();
  if (chosen.folder.empty() || chosen.body != body || chosen.rank != rank) {
    return;
  }
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // gdb is no ancestor of this process
  std::ofstream(chosen.folder + "/rank") << getpid() << std::endl;
  std::ifstream(chosen.folder + "/go").get();
}

}  // namespace ddp::testing
