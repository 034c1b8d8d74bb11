#pragma once

#include "support/trainee.h"

namespace ddp::testing {

/// The two forms of this stage.
enum class Form { kPerParameter, kFlat };

/// "per-parameter", "flat".
const char* to_string(Form form);

/// Makes the form's synchronizer.
MakeSynchronizer make_form(Form form);

}  // namespace ddp::testing
