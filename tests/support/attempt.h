#pragma once

#include <functional>
#include <string>

#include "ddp/referee/client.h"

namespace ddp::testing {

/// What "threw" if a refused call has switched autograd on or off.
constexpr const char* kGradModeChanged = "grad mode changed";

/// Calls `call`, which must be refused; hands in whether it threw: the type and the text of its
/// exception. That of a stub goes on.
void attempt(Client& client, const std::string& what, const std::function<void()>& call);

/// Begins what "threw" if a call needed rank 1, which had failed.
inline const std::string kNeedsRank1 = "needs rank 1: ";

/// Calls `call`, which has to fail as rank 1 does, and not to wait forever.
void expect_failure(Client& client, const std::string& what, const std::function<void()>& call);

}  // namespace ddp::testing
