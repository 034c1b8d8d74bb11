#pragma once

#include <c10/util/Exception.h>

#include <set>
#include <string>
#include <utility>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/evidence.h"

// What is seen of the ranks beside verdicts: what they print, and their timelines.

namespace ddp::testing {

/// Below a failure: what the rank that `finding` names ("rank 1, step 0: ...") printed, or the first
/// that printed if that one did not. Empty if none did.
std::string printed_below(const std::string& finding, const RankReports& reports);

/// All that the ranks of a scenario printed goes to this program's output, of which VERBOSE=1 shows the
/// beginning and the end.
void pass_prints_on(const std::string& scenario, const RankReports& reports);

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

// The timelines of all scenarios of a run, in one Chrome trace: settings().trace is its file. Each scenario
// is a group in it.

/// Adds what the ranks of a scenario did, if a trace is wanted. Each layer computes 0.1 ms in forward
/// and in backward.
void collect_spans(const Evidence& evidence, const std::string& scenario);

/// Writes the collected spans, and reports on stderr if it cannot. Does nothing if
/// no trace is wanted.
void write_trace();

}  // namespace ddp::testing
