#include "support/attempt.h"

#include "ddp/ranks/stub_error.h"

namespace ddp::testing {

void attempt(Client& client, const std::string& what, const std::function<void()>& call) {
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
  }
  client.threw(what, "");
}

}  // namespace ddp::testing
