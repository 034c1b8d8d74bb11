#include "support/settings.h"

namespace ddp::testing {

Settings& settings() {
  static Settings chosen;
  return chosen;
}

}  // namespace ddp::testing
