#include "support/attempt.h"

#include "ddp/ranks/exceptions.h"
#include "support/surroundings.h"

namespace ddp::testing {

void attempt(Client& client, const std::string& what, const std::function<void()>& call) {
  const bool must_fail = what.starts_with(kMustFail);
  const KeptSurroundings kept(client, must_fail ? what.substr(kMustFail.size()) : what);
  client.fact("attempt", 1);
  try {
    call();
  } catch (const c10::Error& error) {
    if (is_stub_error(error)) {
      throw;
    }
    client.threw(what, std::string("c10::Error: ") + error.what_without_backtrace());
    return;
  } catch (const std::exception& error) {
    client.threw(what, std::string("std::exception: ") + error.what());
    return;
  } catch (...) {
    client.threw(what, what_was_thrown());
    return;
  }
  client.threw(what, "");
}

void expect_failure(Client& client, const std::string& what, const std::function<void()>& call) {
  attempt(client, kMustFail + what, call);
}

void expect_lost_connection(Client& client, const std::string& what,
                            const std::function<void()>& call) {
  expect_failure(client, what, [&] {
    call();
    TORCH_CHECK(client.has_failed(), "the operation that fails was not launched");
  });
}

}  // namespace ddp::testing
