#include "support/attempt.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "ddp/ranks/stub_error.h"

namespace ddp::testing {

namespace {

// Autograd is on or off as before, whether the call throws or not.
class KeptGradMode {
 public:
  KeptGradMode(Client& client, std::string what) : client_(client), what_(std::move(what)) {}
  KeptGradMode(const KeptGradMode&) = delete;
  KeptGradMode& operator=(const KeptGradMode&) = delete;
  ~KeptGradMode() {
    if (at::GradMode::is_enabled() != enabled_) {
      client_.threw(kGradModeChanged, what_);
      at::GradMode::set_enabled(enabled_);
    }
  }

 private:
  Client& client_;
  const std::string what_;
  const bool enabled_ = at::GradMode::is_enabled();
};

}  // namespace

void attempt(Client& client, const std::string& what, const std::function<void()>& call) {
  const KeptGradMode kept(client, what);
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
