#include "support/settings.h"

#include "ddp/ranks/confine.h"
#include "ddp/ranks/stage_library.h"

namespace ddp::testing {

Settings& settings() {
  static Settings chosen;
  return chosen;
}

void load_stage_under_test() {
  if (settings().untrusted) {
    confine(settings().stage_library);
  }
  load_stage_library(settings().stage_library);
  if (settings().untrusted) {
    forbid_new_code();
  }
}

}  // namespace ddp::testing
