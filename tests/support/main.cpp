#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

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

}  // namespace

}  // namespace ddp::testing

int ddp_main(int argc, char** argv) {
  using namespace ddp::testing;
  ::testing::InitGoogleTest(&argc, argv);  // removes its own flags
  Settings& chosen = settings();
  chosen.seed = std::random_device{}();
  bool list = false;
  int records_fd = -1;
  double deadline = static_cast<double>(chosen.deadline.count()) / 1e3;
  std::string device = "cpu";
  std::vector<std::string> names;

  CLI::App app("Tests of ddp-lab. `make test` and `make check` run them.");
  app.add_flag("--list", list, "Print the graded tests as JSON and end");
  app.add_option("--stage-library", chosen.stage_library, "The stage under test");
  app.add_option("--records-fd", records_fd, "Where to write one JSON object an event");
  app.add_option("--test", names, "Run only this graded test (may be repeated)");
  app.add_option("--seed", chosen.seed, "Seed of all random numbers");
  app.add_option("--device", device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--trace", chosen.trace, "Where to write what each rank did and when")
      ->envname("DDP_LAB_TRACE");
  app.add_option("--deadline", deadline, "Seconds a group of ranks may take");
  CLI11_PARSE(app, argc, argv);

  if (list) {
    list_tests();
    return 0;
  }
  chosen.device = at::Device(device);
  chosen.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(deadline * 1e3));
  if (!names.empty()) {
    ::testing::GTEST_FLAG(filter) = filter_of(names);
  }
  if (records_fd >= 0) {
    write_records_to(records_fd);
  }
  const int failed = RUN_ALL_TESTS();
  write_trace();
  // The records hold the verdicts: the exit code says only that the program finished.
  return records_fd >= 0 ? 0 : failed;
}
