#pragma once

#include <functional>
#include <string>

#include "ddp/referee/client.h"

namespace ddp::testing {

/// Calls `call`, which must be refused; hands in whether it threw: the type and the text of its
/// exception. That of a stub goes on.
void attempt(Client& client, const std::string& what, const std::function<void()>& call);

/// Begins what "threw" if a call needed communication that failed.
inline const std::string kMustFail = "must fail: ";

/// Calls `call`, which has to fail as its communication does, and not to wait forever: "a step that
/// rank 1 takes no part in".
void expect_failure(Client& client, const std::string& what, const std::function<void()>& call);

/// The same where World::failure is what fails. Whoever does without that operation may succeed.
void expect_lost_connection(Client& client, const std::string& what,
                            const std::function<void()>& call);

}  // namespace ddp::testing
