// Ranks that end in every possible way: each is reported within its deadline, and leaves nothing.
#include "ddp/ranks/fork_ranks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <thread>

#include "ddp/ranks/launch.h"
#include "harness/checks.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::expect_contains;
using testing::run_plain_ranks;

constexpr std::chrono::milliseconds kSoon{1'500};
constexpr std::chrono::seconds kEnough{20};  // for anything that must be quick, on any machine

std::string children_of_this_process() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  std::string pids;
  std::getline(file, pids);
  return pids;
}

// Whatever happens in such a test, it leaves no process or file, and takes no longer than it
// should.
class ForkRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* old = std::getenv("TMPDIR");
    old_tmpdir_ = old == nullptr ? "" : old;
    tmpdir_ = (std::filesystem::temp_directory_path() / "ddp_lab_meta_XXXXXX").string();
    ASSERT_NE(mkdtemp(tmpdir_.data()), nullptr);
    setenv("TMPDIR", tmpdir_.c_str(), 1);
  }

  void TearDown() override {
    EXPECT_EQ(children_of_this_process(), "");
    EXPECT_TRUE(std::filesystem::is_empty(tmpdir_));
    EXPECT_LT(std::chrono::steady_clock::now() - begin_, kEnough);
    std::filesystem::remove_all(tmpdir_);
    old_tmpdir_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", old_tmpdir_.c_str(), 1);
  }

 private:
  std::string tmpdir_;
  std::string old_tmpdir_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Rank 1 of 3 does `misbehave`; the others wait.
RankReport report_of(const std::function<void()>& misbehave) {
  const RankReports reports =
      run_plain_ranks({.world_size = 3, .deadline = kSoon}, [&](RankContext& context) {
        if (context.rank == 1) {
          misbehave();
        } else {
          pause();
        }
      });
  const bool hung = reports.ranks[1].outcome == RankOutcome::kTimedOut;
  EXPECT_EQ(reports.culprit, hung ? 0 : 1);  // who of those that hang waits for whom, nobody knows
  expect_contains(reports.describe(), "rank 1 ");
  for (const int other : {0, 2}) {
    EXPECT_EQ(reports.ranks[other].outcome, hung ? RankOutcome::kTimedOut : RankOutcome::kStopped)
        << reports.describe();
  }
  return reports.ranks[1];
}

void expect_innermost_place(const RankReport& report, const std::string& function) {
  ASSERT_FALSE(report.stack.empty());
  expect_contains(report.stack[0], "tests/harness/fork_ranks_test.cpp:");
  expect_contains(report.stack[0], function);
}

[[gnu::noinline]] void write_to_nowhere() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

[[gnu::noinline]] void loop_for_ever() {
  volatile bool on = true;
  while (on) {
  }
}

// `for_ever` is true, but the compiler must not know.
[[gnu::noinline]] int recurse_for_ever(volatile bool* for_ever) {
  volatile int here = *for_ever ? recurse_for_ever(for_ever) : 0;
  return here + 1;
}

// A part that the compiler has put apart may begin with what crashes.
[[gnu::noinline]] void trap_at_the_first_instruction() { __builtin_trap(); }

TEST_F(ForkRanks, ACrashIsReportedWithItsSignalAndPlace) {
  struct Crash {
    std::function<void()> crash;
    std::string signal, function;
  };
  const std::vector<Crash> crashes = {{write_to_nowhere, "SIGSEGV", "write_to_nowhere"},
                                      {trap_at_the_first_instruction, "SIG", "trap_at_the_first"},
                                      {[] { std::abort(); }, "SIGABRT", ""}};
  for (const auto& [crash, signal, function] : crashes) {
    const RankReport report = report_of(crash);
    EXPECT_EQ(report.outcome, RankOutcome::kSignalled);
    expect_contains(report.reason, signal);
    expect_innermost_place(report, function);
  }
}

TEST_F(ForkRanks, StackOverflowNamesThePlace) {
  volatile bool for_ever = true;
  const RankReport report = report_of([&] { recurse_for_ever(&for_ever); });
  expect_contains(report.reason, "SIGSEGV");
  expect_innermost_place(report, "recurse_for_ever");
}

TEST_F(ForkRanks, EarlyExitIsNoSuccess) {
  for (const int code : {0, 3}) {
    using Leave = void (*)(int);
    for (const Leave leave : {Leave(&std::exit), Leave(&_exit)}) {
      const RankReport report = report_of([&] { leave(code); });
      EXPECT_EQ(report.outcome, RankOutcome::kExited);
      expect_contains(report.reason, "exit(" + std::to_string(code) + ")");
    }
  }
}

TEST_F(ForkRanks, FramesWrittenByTheBodyAreNoSuccess) {
  const RankReport report = report_of([] {
    const char frame[] = {'f', 1, 0, 0, 0, '1'};
    for (const int fd : {1, 2, 3}) {
      EXPECT_LE(write(fd, frame, sizeof(frame)), static_cast<ssize_t>(sizeof(frame)));
    }
    _exit(0);
  });
  EXPECT_EQ(report.outcome, RankOutcome::kExited);
}

TEST_F(ForkRanks, EndlessLoopIsStoppedAtTheDeadline) {
  const RankReport report = report_of(loop_for_ever);
  EXPECT_EQ(report.outcome, RankOutcome::kTimedOut);
  expect_contains(report.reason, "1500 ms");
  expect_innermost_place(report, "loop_for_ever");
}

TEST_F(ForkRanks, DeafRankIsStoppedAllTheSame) {
  const RankReport report = report_of([] {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    loop_for_ever();
  });
  EXPECT_EQ(report.outcome, RankOutcome::kTimedOut);
}

TEST_F(ForkRanks, ExceptionsAreReportedInTheirWords) {
  const RankReport standard = report_of([] { throw std::runtime_error("out of luck"); });
  EXPECT_EQ(standard.outcome, RankOutcome::kThrew);
  EXPECT_EQ(standard.reason, "out of luck");

  const RankReport torch = report_of([] { TORCH_CHECK(false, "out of ", 7); });
  EXPECT_EQ(torch.outcome, RankOutcome::kThrew);
  EXPECT_EQ(torch.reason, "out of 7");
  EXPECT_FALSE(torch.not_implemented);

  const RankReport unknown = report_of([] { throw 7; });
  EXPECT_EQ(unknown.outcome, RankOutcome::kThrew);
  expect_contains(unknown.reason, "of the type int");
}

TEST_F(ForkRanks, StubsAreToldFromErrorsAndLongTextsCut) {
  const RankReport stub =
      report_of([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 01 do it"); });
  EXPECT_EQ(stub.outcome, RankOutcome::kThrew);
  EXPECT_TRUE(stub.not_implemented);
  EXPECT_EQ(stub.reason, "TODO(student): 01 do it");

  const RankReport lengthy = report_of([] { throw std::runtime_error(std::string(5 << 20, 'x')); });
  EXPECT_LE(lengthy.reason.size(), 1U << 20);
}

TEST_F(ForkRanks, AFloodOfOutputEndsTheRankThatPrintsIt) {
  const RankReports reports = run_plain_ranks({.world_size = 2}, [](RankContext& context) {
    const std::string line(1 << 20, 'x');
    while (context.rank == 1) {
      std::cout << line;
    }
  });
  EXPECT_FALSE(reports.ok());
  EXPECT_EQ(reports.culprit, 1);
  expect_contains(reports.ranks[1].reason, "MiB");
}

TEST_F(ForkRanks, EndlessMessagesAreBounded) {
  const RankReports reports = run_plain_ranks({.world_size = 1}, [](RankContext& context) {
    for (int i = 0; i < 100'000; ++i) {
      context.send_to_parent("message " + std::to_string(i));
    }
  });
  EXPECT_TRUE(reports.ok()) << reports.describe();
  ASSERT_EQ(reports.ranks[0].messages.size(), 1'000U);
  EXPECT_EQ(reports.ranks[0].messages[999], "message 999");
}

TEST_F(ForkRanks, OutputOfTheDyingIsKept) {
  const RankReport report = report_of([] {
    std::cout << "last words" << std::flush;
    write_to_nowhere();
  });
  EXPECT_EQ(report.log, "last words");
}

// Starts a process that no longer belongs to the rank, and returns its id.
pid_t start_daemon() {
  auto* daemon = static_cast<volatile pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t starter = fork();
  if (starter == 0) {
    setsid();
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) {
        pause();
      }
    }
    *daemon = pid;
    _exit(0);
  }
  waitpid(starter, nullptr, 0);
  return *daemon;
}

TEST_F(ForkRanks, DaemonsOfARankGoWithIt) {
  const RankReports reports = run_plain_ranks({.world_size = 2}, [](RankContext& context) {
    context.send_to_parent(std::to_string(start_daemon()));
  });
  EXPECT_TRUE(reports.ok()) << reports.describe();
  for (const RankReport& report : reports.ranks) {
    ASSERT_EQ(report.messages.size(), 1U);
    EXPECT_EQ(kill(std::stoi(report.messages[0]), 0), -1) << "it is still there";
  }
}

TEST_F(ForkRanks, ParentWithThreadsIsRefused) {
  std::promise<void> enough;
  std::thread thread([future = enough.get_future()] { future.wait(); });
  EXPECT_THROW(run_plain_ranks({}, [](RankContext&) {}), c10::Error);
  enough.set_value();
  thread.join();
}

TEST_F(ForkRanks, WorldsOfManySizesWork) {
  for (const int world_size : {1, 2, 8, 32}) {
    testing::expect_plain_ranks_pass({.world_size = world_size}, [](RankContext& context) {
      const ProcessGroupPtr group = make_gloo_group(context);
      const at::Tensor tensor = at::ones({3});
      all_reduce(tensor, group);
      EXPECT_EQ(tensor[2].item<int>(), context.world_size);
      barrier(group);
    });
  }
  EXPECT_THROW(run_plain_ranks({.world_size = 33}, [](RankContext&) {}), c10::Error);
  EXPECT_THROW(run_plain_ranks({.world_size = 0}, [](RankContext&) {}), c10::Error);
}

}  // namespace
}  // namespace ddp
