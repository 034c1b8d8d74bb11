#include <ATen/Parallel.h>
#include <getopt.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/ranks/stage_library.h"
#include "support/debugger.h"
#include "support/grading.h"
#include "support/settings.h"
#include "support/trace.h"

// The entry of every test program.

namespace ddp::testing {

namespace {

void list_tests() {
  auto list = nlohmann::json::array();
  for (const DeclaredTest& test : declared_tests()) {
    list.push_back({{"name", test.claim.name},
                    {"points", test.claim.points},
                    {"hint", test.claim.hint},
                    {"file", test.file},
                    {"line", test.line}});
  }
  std::cout << list.dump(2) << "\n";
}

std::string filter_of(const std::vector<std::string>& names) {
  std::string filter;
  for (const std::string& name : names) {
    filter += (filter.empty() ? "" : ":") + std::string("Graded.") + name;
  }
  return filter;
}

// getopt, as CLI11 would cost each first build seconds: `make test` gives these flags, nobody types
// them.
struct CommandLine {
  bool list = false;               // print the graded tests as JSON and end
  int records_fd = -1;             // where to write one JSON object an event
  std::vector<std::string> tests;  // run only these; empty: all
};

CommandLine read_command_line(int argc, char** argv) {
  enum Flag {
    kList = 1,
    kLibrary,
    kRecords,
    kTest,
    kSeed,
    kDevice,
    kDeadline,
    kMachine,
    kUntrusted,
    kSchedule,
    kManyOrders,
    kBrief,
    kSigns,
    kDebug,
    kDebugBody,
    kDebugRank
  };
  const option flags[] = {{"list", no_argument, nullptr, kList},
                          {"stage-library", required_argument, nullptr, kLibrary},
                          {"records-fd", required_argument, nullptr, kRecords},
                          {"test", required_argument, nullptr, kTest},
                          {"seed", required_argument, nullptr, kSeed},
                          {"device", required_argument, nullptr, kDevice},
                          {"deadline", required_argument, nullptr, kDeadline},
                          {"machine", required_argument, nullptr, kMachine},
                          {"signs-of-life", required_argument, nullptr, kSigns},
                          {"schedule", required_argument, nullptr, kSchedule},
                          {"many-orders", no_argument, nullptr, kManyOrders},
                          {"brief", no_argument, nullptr, kBrief},
                          {"untrusted", no_argument, nullptr, kUntrusted},
                          {"debug", required_argument, nullptr, kDebug},
                          {"debug-body", required_argument, nullptr, kDebugBody},
                          {"debug-rank", required_argument, nullptr, kDebugRank},
                          {}};
  CommandLine line;
  Settings& chosen = settings();
  for (int flag = 0; (flag = getopt_long(argc, argv, "", flags, nullptr)) != -1;) {
    switch (flag) {
      case kList:
        line.list = true;
        break;
      case kLibrary:
        chosen.stage_library = optarg;
        break;
      case kRecords:
        line.records_fd = std::stoi(optarg);
        break;
      case kTest:
        line.tests.emplace_back(optarg);
        break;
      case kSeed:
        chosen.seed = std::stoull(optarg);
        break;
      case kDevice:
        chosen.device = at::Device(optarg);
        break;
      case kDeadline:  // seconds that a group of ranks may take
        chosen.deadline =
            std::chrono::milliseconds(static_cast<std::int64_t>(std::stod(optarg) * 1e3));
        break;
      case kMachine:
        chosen.machine = optarg;
        break;
      case kSigns:
        chosen.signs_of_life = optarg;
        break;
      case kSchedule:
        chosen.schedule = Schedule::of_number(std::stoll(optarg));
        break;
      case kManyOrders:
        chosen.many_orders = true;
        break;
      case kBrief:
        chosen.brief = true;
        break;
      case kUntrusted:
        chosen.untrusted = true;
        break;
      case kDebug:
        debugged().folder = optarg;
        chosen.deadline = kNoDeadline;
        break;
      case kDebugBody:
        debugged().body = optarg;
        break;
      case kDebugRank:
        debugged().rank = std::stoi(optarg);
        break;
      default:  // getopt has said what is wrong
        std::exit(2);
    }
  }
  return line;
}

// A program that is started by hand, or by an editor, grades the student's stage: tests_01_naive_ddp has that of
// 01_naive_ddp.
void choose_own_stage() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").filename();
  settings().stage_library = stage_library("assignments", program.substr(program.find('_') + 1));
  if (!::testing::GTEST_FLAG(list_tests)) {
    std::cerr << "Grading " << settings().stage_library << ", seed " << settings().seed
              << ". Another: --stage-library=PATH. With points, in seconds: make test\n";
  }
}

}  // namespace

}  // namespace ddp::testing

int ddp_main(int argc, char** argv) {
  using namespace ddp::testing;
  ::testing::InitGoogleTest(&argc, argv);  // takes its own flags out
  at::set_num_threads(1);                  // claims compute with tensors, and bodies are forked
  Settings& chosen = settings();
  chosen.seed = std::random_device{}();
  if (const char* trace = std::getenv("DDP_LAB_TRACE")) {
    chosen.trace = trace;
  }
  const CommandLine line = read_command_line(argc, argv);
  if (line.list) {
    list_tests();
    return 0;
  }
  if (chosen.stage_library.empty() && !declared_tests().empty()) {
    choose_own_stage();
  }
  if (chosen.untrusted) {
    prctl(PR_SET_DUMPABLE, 0);  // its ranks cannot look into it, nor into each other
  }
  if (!line.tests.empty()) {
    ::testing::GTEST_FLAG(filter) = filter_of(line.tests);
  }
  if (line.records_fd >= 0) {
    write_records_to(line.records_fd);
  }
  register_graded_tests();
  const int failed = RUN_ALL_TESTS();
  write_trace();
  // With records, the verdicts are there: the exit code says only that the program came to its end.
  return line.records_fd >= 0 ? 0 : failed;
}
