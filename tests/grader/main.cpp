#include <ATen/Parallel.h>
#include <getopt.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/ranks/stage_library.h"
#include "grader/grading.h"
#include "grader/run_output.h"
#include "grader/settings.h"

// The entry of every test program.

namespace ddp::testing {

namespace {

void list_tests() {
  auto list = nlohmann::json::array();
  for (const DeclaredTest& test : declared_tests()) {
    list.push_back({{"name", test.claim.name},
                    {"title", test.claim.title},
                    {"points", test.claim.points},
                    {"hint", test.claim.hint},
                    {"more", test.claim.more},
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

// Of a decimal line, of which no copy stays.
std::uint64_t read_seed() {
  std::uint64_t seed = 0;
  char digit = 0;
  while (read(STDIN_FILENO, &digit, 1) == 1 && digit >= '0' && digit <= '9') {
    seed = seed * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  digit = 0;
  return seed;
}

CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  Settings& chosen = settings();
  struct Flag {
    const char* name;
    int has_value;
    std::function<void()> take;
  };
  const std::vector<Flag> flags = {
      {"list", no_argument, [&] { line.list = true; }},
      {"stage-library", required_argument, [&] { chosen.stage_library = optarg; }},
      {"records-fd", required_argument, [&] { line.records_fd = std::stoi(optarg); }},
      {"test", required_argument, [&] { line.tests.emplace_back(optarg); }},
      {"seed",
       required_argument,  // "-": it is a line of the standard input, which is in no argument
       [&] { chosen.seed = optarg == std::string_view("-") ? read_seed() : std::stoull(optarg); }},
      {"device", required_argument, [&] { chosen.device = at::Device(optarg); }},
      {"deadline", required_argument,  // seconds that a group of ranks may take
       [&] { chosen.deadline = std::chrono::milliseconds(std::llround(std::stod(optarg) * 1e3)); }},
      {"minimum-activity", required_argument, [&] { chosen.minimum_activity = optarg; }},
      {"scenario", required_argument, [&] { chosen.scenario = optarg; }},
      {"brief", no_argument, [&] { chosen.brief = true; }},
      {"untrusted", no_argument, [&] { chosen.untrusted = true; }},
      {"withhold", no_argument, [&] { chosen.withhold = true; }},
      {"debug", required_argument, [&] { chosen.debug.folder = optarg; }},
      {"debug-scenario", required_argument, [&] { chosen.debug.scenario = optarg; }},
      {"debug-rank", required_argument, [&] { chosen.debug.rank = std::stoi(optarg); }}};
  std::vector<option> options;
  for (const Flag& flag : flags) {
    options.push_back({flag.name, flag.has_value, nullptr, static_cast<int>(options.size())});
  }
  options.push_back({});
  for (int flag = 0; (flag = getopt_long(argc, argv, "", options.data(), nullptr)) != -1;) {
    if (flag == '?') {  // getopt has said what is wrong
      std::exit(2);
    }
    flags[flag].take();
  }
  if (!chosen.debug.folder.empty()) {
    chosen.deadline = kNoDeadline;
  }
  return line;
}

// What claims compute may be as large as the tensors are that ranks hand in; what ranks share with this
// process is not counted.
void limit_own_memory() {
  rlimit memory{};
  getrlimit(RLIMIT_DATA, &memory);
  memory.rlim_cur = std::min(memory.rlim_max, rlim_t{4} << 30);
  setrlimit(RLIMIT_DATA, &memory);
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
  at::set_num_threads(1);                  // claims compute with tensors, and scenarios are forked
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
    limit_own_memory();
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
