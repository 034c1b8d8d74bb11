#include "grader/grading.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "grader/minimum_activity.h"

namespace ddp::testing {

namespace {

constexpr const char* kSuite = "Graded";

class BodyTest : public ::testing::Test {
 public:
  explicit BodyTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};

// What the running test has reported.
struct Notes {
  bool todo = false;
  bool not_judged = false;
  std::vector<std::string> failures;
  std::vector<std::string> notes;  // why it was skipped
  std::vector<std::string> scenarios;
  int runs_held = 0;
  int runs = 0;
  std::vector<std::string> excuses;  // why nothing can be said of a scenario
  nlohmann::json broken = nlohmann::json::array();
  nlohmann::json picture;
};

Notes& notes() {
  static Notes current;
  return current;
}

// By scenario: the tests that are charged with it and have not judged it. A rank could end it at once,
// so that no other test sees what it would do in it, and nobody would fail.
std::map<std::string, std::set<std::string>>& missing_payers() {
  static std::map<std::string, std::set<std::string>> missing;
  return missing;
}

std::vector<std::string> unpaid_scenarios() {
  std::vector<std::string> unpaid;
  for (const auto& [scenario, payers] : missing_payers()) {
    for (const std::string& payer : payers) {
      unpaid.push_back("\"" + scenario + "\" is charged to " + payer + ", which does not judge it");
    }
  }
  return unpaid;
}

std::vector<DeclaredTest>& registry() {
  static std::vector<DeclaredTest> tests;
  return tests;
}

// Sends each event to the grader at once, so that a run that is killed still has its scores.
class RecordWriter : public ::testing::EmptyTestEventListener {
 public:
  explicit RecordWriter(int fd) : fd_(fd) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    notes() = {};
    write_line({{"event", "test_started"}, {"name", test.name()}});
  }

  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (part.skipped()) {
      notes().notes.emplace_back(part.message());
    } else if (part.failed()) {
      if (std::exchange(notes().not_judged, false)) {
        notes().failures.clear();  // what is found after all says more
      }
      notes().failures.push_back(failure_text(part));
    }
  }

  void scenario_ended() const { write_line({{"event", "scenario_ended"}}); }

  void OnTestEnd(const ::testing::TestInfo& test) override {
    const auto& result = *test.result();
    const bool passed = !result.Failed() && !result.Skipped();
    if (passed && notes().runs == 0 && !notes().scenarios.empty()) {
      notes().not_judged = true;
      notes().failures = {"not judged: there is no run in which this can be seen"};
    } else if (passed && 2 * notes().excuses.size() > notes().scenarios.size()) {
      notes().not_judged = true;
      notes().failures = {"not judged: " + notes().excuses.front()};
    }
    write_line({{"event", "test_finished"},
                {"name", test.name()},
                {"status", status_of(result)},
                {"seconds", static_cast<double>(result.elapsed_time()) / 1e3},
                {"failures", notes().failures},
                {"notes", notes().notes},
                {"scenarios", notes().scenarios},
                {"runs", {notes().runs_held, notes().runs}},
                {"broken", notes().broken},
                {"picture", notes().picture}});
  }

  void OnTestProgramEnd(const ::testing::UnitTest&) override {
    write_line({{"event", "run_finished"},
                {"activity", minimum_activity()},
                {"unpaid", unpaid_scenarios()}});
  }

 private:
  static const char* status_of(const ::testing::TestResult& result) {
    if (result.Failed() || notes().not_judged) {
      return notes().todo ? "todo" : notes().not_judged ? "not_judged" : "failed";
    }
    return result.Skipped() ? "skipped" : "passed";
  }

  void write_line(const nlohmann::json& record) const {
    // A message may contain bytes of a student's output that are not UTF-8.
    const std::string line =
        record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t count = write(fd_, line.data() + sent, line.size() - sent);
      if (count <= 0) {
        return;  // the grader is gone
      }
      sent += count;
    }
  }

  int fd_;
};

// Null where no records are written. GoogleTest owns it.
RecordWriter*& record_writer() {
  static RecordWriter* writer = nullptr;
  return writer;
}

}  // namespace

GradedTest::GradedTest(const Claim& claim, std::function<void()> body, const char* file, int line) {
  registry().push_back({claim, std::move(body), file, line});
}

const std::vector<DeclaredTest>& declared_tests() {
  std::ranges::sort(registry(), {},
                    [](const DeclaredTest& test) { return std::pair(test.file, test.line); });
  return registry();
}

void register_graded_tests() {
  for (const DeclaredTest& test : declared_tests()) {
    ::testing::RegisterTest(kSuite, test.claim.name, nullptr, nullptr, test.file.c_str(), test.line,
                            [&test]() -> ::testing::Test* {
                              return new BodyTest(test.body);  // GoogleTest owns it
                            });
  }
}

void note_todo(const std::string& text) {
  notes().todo = true;
  ADD_FAILURE() << text;
}

void note_not_judged(const std::string& why) {
  if (!::testing::Test::HasFailure()) {
    ADD_FAILURE() << "not judged: " << why;
    notes().not_judged = true;
  }
}

bool will_run(const std::string& test) {
  const auto& unit = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < unit.total_test_suite_count(); ++i) {
    const auto& suite = *unit.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const auto& info = *suite.GetTestInfo(j);
      if (info.name() == test) {
        return info.should_run();
      }
    }
  }
  return false;
}

void note_scenario(const Scenario& scenario) {
  auto& names = notes().scenarios;
  if (std::ranges::find(names, scenario.name) == names.end()) {
    names.push_back(scenario.name);
  }
  const std::set<std::string> charged = {scenario.charged_to, scenario.charged_in_backward};
  auto& payers = missing_payers().try_emplace(scenario.name, charged).first->second;
  payers.erase(::testing::UnitTest::GetInstance()->current_test_info()->name());
  payers.erase("");
}

void note_scenario_ended() {
  if (record_writer() != nullptr) {
    record_writer()->scenario_ended();
  }
}

void note_runs(int holds, int judged) {
  notes().runs_held += holds;
  notes().runs += judged;
}

void note_excused(const std::string& why) { notes().excuses.push_back(why); }

void note_broken(const Broken& broken) {
  notes().broken.push_back({{"scenario", broken.scenario},
                            {"edge_cases", broken.edge_cases},
                            {"charged_to", broken.charged_to}});
}

void note_picture(nlohmann::json picture) { notes().picture = std::move(picture); }

std::string failure_text(const ::testing::TestPartResult& part) {
  constexpr std::string_view kFailed = "Failed\n";
  const std::string_view text = part.message();
  return std::string(text.starts_with(kFailed) ? text.substr(kFailed.size()) : text);
}

void write_records_to(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);  // for nobody else, not even for what names a crash's lines
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());  // leaves the output to the ranks
  record_writer() = new RecordWriter(fd);
  listeners.Append(record_writer());  // takes ownership
}

}  // namespace ddp::testing
