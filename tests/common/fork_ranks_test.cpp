// Ranks that end in every possible way: each is reported within its deadline, and leaves nothing; and what
// their parent makes of what they write.
#include "ddp/ranks/fork_ranks.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "common/checks.h"
#include "common/ranks.h"
#include "common/temporary_folder.h"
#include "ddp/launching/launch.h"
#include "ddp/ranks/rank_output.h"
#include "ddp/ranks/stage_library.h"

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
class ForkRanks : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    const char* old = std::getenv("TMPDIR");
    old_tmpdir_ = old == nullptr ? "" : old;
    setenv("TMPDIR", folder_.c_str(), 1);
  }

  void TearDown() override {
    old_tmpdir_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", old_tmpdir_.c_str(), 1);
    EXPECT_EQ(children_of_this_process(), "");
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    EXPECT_LT(std::chrono::steady_clock::now() - begin_, kEnough);
    FolderTest::TearDown();
  }

 private:
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
  expect_contains(report.stack[0], "tests/common/fork_ranks_test.cpp:");
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

TEST_F(ForkRanks, WhatIsSecretIsWithheld) {
  const RankReports reports =
      fork_ranks({.world_size = 1, .withhold = true}, [](RankContext& rank) {
        std::puts("the secret");
        rank.send_to_parent("the secret");
        throw std::runtime_error("the secret");
      });
  ASSERT_EQ(reports.culprit, 0);
  EXPECT_EQ(reports.describe().find("the secret"), std::string::npos) << reports.describe();
  EXPECT_TRUE(reports.ranks[0].messages.empty() && reports.ranks[0].log.empty());
  expect_contains(reports.describe(), "threw an exception: its text is withheld");
  EXPECT_EQ(reports.describe().find("fork_ranks_test.cpp"), std::string::npos)
      << "a stage's debug information can say anything by a line's number";
  const RankReports ended =
      fork_ranks({.world_size = 1, .withhold = true}, [](RankContext&) { std::_Exit('s'); });
  expect_contains(ended.describe(), "something called exit(): its code is withheld");
}

// The frames of a rank may name whatever file its code wants to know about.
TEST_F(ForkRanks, OnlyFilesOfTheRunAreSearchedForPlaces) {
  const auto here = reinterpret_cast<const void*>(&write_to_nowhere);
  std::array<char, 1024> buffer{};
  const StackFrame frame = parse_stack_frame(std::string(describe_frame(here, buffer)));
  EXPECT_TRUE(name_places({frame})[0].starts_with("tests/common/fork_ranks_test.cpp:"));
  for (const auto& place : name_places({frame}, {.untrusted = true})) {
    EXPECT_EQ(place.find("fork_ranks_test.cpp"), std::string::npos) << place;
  }
  EXPECT_TRUE(name_places({{stage_library("solutions", "01_naive_ddp"), "9000", "?"}}).empty());
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

// A frame as it travels through the pipe.
std::string bytes_of_frame(FrameKind kind, std::string_view text) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_NONBLOCK), 0);
  FileDescriptor out(ends[0]);
  const FileDescriptor in(ends[1]);
  write_frame(in.get(), kind, text);
  std::string bytes;
  drain(out, [&](std::string_view part) { bytes.append(part); });
  return bytes;
}

TEST(Drain, ClosesADescriptorAtItsEndOnly) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  FileDescriptor out(ends[0]);
  std::string bytes;
  const auto take = [&](std::string_view part) { bytes.append(part); };
  {
    const FileDescriptor in(ends[1]);
    drain(out, take);
    EXPECT_GE(out.get(), 0) << "nothing has come yet";
    ASSERT_EQ(write(in.get(), "last", 4), 4);
  }
  drain(out, take);
  EXPECT_EQ(bytes, "last");
  EXPECT_EQ(out.get(), -1) << "poll() would report it again and again";
  drain(out, take);
}

TEST(BoundedText, KeepsShortTextsWhole) {
  BoundedText text;
  EXPECT_EQ(text.str(), "");
  text.append("one ");
  text.append("two");
  EXPECT_EQ(text.str(), "one two");
  const std::string rest((16 << 10) - 7, 'x');
  text.append(rest);
  EXPECT_EQ(text.str(), "one two" + rest);
}

TEST(BoundedText, KeepsBeginningAndEndOfLongOnes) {
  constexpr std::size_t kLength = 8'192'000;
  for (const std::size_t piece : {1'000U, 8'192U, 4'096'000U}) {
    BoundedText text;
    text.append("begin");
    for (std::size_t written = 0; written < kLength; written += piece) {
      text.append(std::string(piece, 'x'));
    }
    text.append("end");
    const std::string kept = text.str();
    EXPECT_LT(kept.size(), (16U << 10) + 100);
    EXPECT_TRUE(kept.starts_with("begin"));
    EXPECT_TRUE(kept.ends_with("end"));
    EXPECT_NE(
        kept.find("[... " + std::to_string(kLength + 8 - (16 << 10)) + " bytes left out ...]"),
        std::string::npos)
        << "in pieces of " << piece;
  }
}

TEST(FrameReader, PutsFramesTogetherFromAnyPieces) {
  const std::string bytes = bytes_of_frame(FrameKind::kMessage, "hello") +
                            bytes_of_frame(FrameKind::kThrew, "") +
                            bytes_of_frame(FrameKind::kStack, "a b c");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.append(std::string_view(bytes).substr(at, piece));
      while (auto frame = reader.next()) {
        frames.push_back(*frame);
      }
    }
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(frames[0].kind, FrameKind::kMessage);
    EXPECT_EQ(frames[0].text, "hello");
    EXPECT_EQ(frames[1].text, "");
    EXPECT_EQ(frames[2].text, "a b c");
  }
}

// Its own, after that of code that has found the token.
TEST(RankOutput, ARankSaysOnceThatItHasFinished) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  Child child;
  child.report = FileDescriptor(ends[0]);
  const FileDescriptor in(ends[1]);
  child.token = "token";
  write_frame(in.get(), FrameKind::kFinished, "token");
  take_output(child);
  EXPECT_TRUE(child.returned);
  write_frame(in.get(), FrameKind::kFinished, "token");
  take_output(child);
  EXPECT_FALSE(child.returned);
}

TEST(FrameReader, StopsAtWhatIsNoFrame) {
  FrameReader reader;
  reader.append("Hello, I print to every descriptor");
  EXPECT_FALSE(reader.next().has_value());
  reader.append(bytes_of_frame(FrameKind::kFinished, "token"));
  EXPECT_FALSE(reader.next().has_value());
}

TEST(RankOutput, StackFramesMayHaveSpacesInTheModule) {
  const StackFrame frame = parse_stack_frame("/my lab/libstage.so 1a2b _ZN3ddp1fEv");
  EXPECT_EQ(frame.module, "/my lab/libstage.so");
  EXPECT_EQ(frame.offset, "1a2b");
  EXPECT_EQ(frame.symbol, "_ZN3ddp1fEv");
  EXPECT_EQ(parse_stack_frame("").module, "");
}

TEST(RankOutput, MissingSymbolIsNamed) {
  EXPECT_EQ(explain_exit(127, "x: symbol lookup error: y: undefined symbol: _ZN3ddp1fEi\n"),
            "the stage does not define ddp::f(int), which its header declares");
  EXPECT_EQ(explain_exit(3, ""),
            "something called exit(3) before the rank's function had returned");
}

TEST(RankOutput, ALongNameIsFolded) {
  const std::vector<std::string> places = name_places({{"x_code.so", "0", std::string(800, 'x')}});
  ASSERT_EQ(places.size(), 1);
  EXPECT_EQ(places[0], std::string(120, 'x') + "...");
}

std::string described(const RankFunction& body) {
  return run_plain_ranks({.world_size = 1}, body).describe();
}

[[gnu::noinline]] void view_wrongly() { at::ones({3}).view({7}); }

TEST(RankReports, ExceptionsNameTheirPlaceAndOperator) {
  const std::string here = "at tests/common/fork_ranks_test.cpp:";
  const std::string standard =
      described([](RankContext&) { static_cast<void>(std::vector<int>().at(3)); });
  expect_contains(standard, here);
  expect_contains(standard, " in operator()\n");
  const std::string torch = described([](RankContext&) { view_wrongly(); });
  expect_contains(torch, here);
  expect_contains(torch, "view_wrongly, which called aten::view\n");
}

// libtorch's own "not implemented" goes on with a line for each of its backends.
TEST(RankReports, AMissingKernelIsNoStubAndReportedBriefly) {
  const RankReports reports = run_plain_ranks(
      {.world_size = 1}, [](RankContext&) { at::cumsum(at::ones({3}).to_sparse(), 0); });
  ASSERT_FALSE(reports.ok());
  EXPECT_FALSE(reports.ranks[0].not_implemented);
  const std::string text = reports.describe();
  expect_contains(text, "Could not run 'aten::cumsum");
  expect_contains(text, "more lines ...]");
  EXPECT_LT(std::ranges::count(text, '\n'), 20) << text;
}

TEST(RankReports, RanksThatFailAlikeAreReportedOnce) {
  const std::string text = run_plain_ranks({.world_size = 4}, [](RankContext& context) {
                             TORCH_CHECK(context.rank == 2, "alike");
                             pause();
                           }).describe();
  EXPECT_EQ(text.find("alike"), text.rfind("alike")) << text;
  expect_contains(text, "the same in rank ");
  expect_contains(text, "rank 2 gave up");
}

TEST(RankReports, PrintsAreShownWithTheirFirstAndLastLines) {
  const RankReports reports = run_plain_ranks({.world_size = 1}, [](RankContext&) {
    for (int line = 1; line <= 30; ++line) {
      std::cout << "line " << line << "\n";
    }
    std::cout.flush();
    std::fputs("no newline", stderr);
    TORCH_CHECK(false, "enough");
  });
  const std::string text = reports.describe();
  expect_contains(text, "rank 0 printed:\n    | line 1\n");
  expect_contains(text,
                  "    | line 10\n    [... 11 more lines with VERBOSE=1 ...]\n    | line 22\n");
  expect_contains(text, "    | no newline\n");
}

}  // namespace
}  // namespace ddp
