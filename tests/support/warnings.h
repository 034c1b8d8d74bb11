#pragma once

#include <c10/util/Exception.h>

#include <set>
#include <string>
#include <utility>

namespace ddp::testing {

/// While it lives, what libtorch warns of on this thread is printed once for each text, and not at all
/// if it is about `ours`, which is a test's own doing.
class EachWarningOnce {
 public:
  explicit EachWarningOnce(std::string ours = "") : handler_(std::move(ours)), guard_(&handler_) {}

 private:
  class Handler : public c10::WarningHandler {
   public:
    explicit Handler(std::string ours) : ours_(std::move(ours)) {}

    void process(const c10::Warning& warning) override {
      const bool is_ours = !ours_.empty() && warning.msg().find(ours_) != std::string::npos;
      if (!is_ours && said_.insert(warning.msg()).second) {
        WarningHandler::process(warning);
      }
    }

   private:
    const std::string ours_;
    std::set<std::string> said_;
  };

  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace ddp::testing
