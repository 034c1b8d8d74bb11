// launch() on this machine without a launcher, on which cores ranks run, and what launchers set; test_launch.py
// tests launchers.
#include "ddp/launching/launch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>

#include "common/checks.h"
#include "common/ranks.h"
#include "ddp/collectives.h"
#include "ddp/launching/environment.h"
#include "ddp/launching/meeting.h"
#include "ddp/ranks/stage_library.h"

namespace ddp {
namespace {

using testing::expect_contains;

// A process that runs a program, with its stdout and stderr in one pipe. It is forked, since the
// program is a function.
class Program {
 public:
  explicit Program(const std::function<int()>& program) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0 || (pid_ = fork()) < 0) {
      throw std::runtime_error("no process for the test");
    }
    if (pid_ == 0) {
      std::signal(SIGINT, SIG_DFL);  // the tests' shell may have set it to be ignored
      for (const char* name : {"RANK", "WORLD_SIZE"}) {
        unsetenv(name);
      }
      dup2(pipe_ends[1], STDOUT_FILENO);
      dup2(pipe_ends[1], STDERR_FILENO);
      close(pipe_ends[0]);
      close(pipe_ends[1]);
      _exit(program());
    }
    close(pipe_ends[1]);
    output_ = fdopen(pipe_ends[0], "r");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { std::fclose(output_); }

  void interrupt() const { kill(pid_, SIGINT); }

  std::string line() {
    char text[256];
    return std::fgets(text, sizeof(text), output_) != nullptr ? text : "";
  }

  /// The rest of the output, up to the end of the last process that could write.
  std::string rest() {
    std::string all;
    for (std::string next = line(); !next.empty(); next = line()) {
      all += next;
    }
    return all;
  }

  int status() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

void say(const std::string& line) {
  EXPECT_EQ(write(STDOUT_FILENO, line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

TEST(Launch, ForksTheRanksAndPassesTheirOutputOn) {
  Program program([] {
    return launch({.world_size = 3}, [](RankContext& context) {
      const Placement placement = placement_of(context);
      say(placement.one_machine && placement.local_rank == context.rank ? "right\n" : "wrong\n");
    });
  });
  EXPECT_EQ(program.rest(), "right\nright\nright\n");
  EXPECT_EQ(program.status(), 0);
}

TEST(Launch, NamesTheRankThatFailedBeforeThoseThatLostIt) {
  Program program([] {
    return launch({.world_size = 3}, [](RankContext& context) {
      const auto group = make_gloo_group(context);
      barrier(group);  // all are connected: Gloo logs a line where that fails
      TORCH_CHECK(context.rank != 2, "no data here");
      barrier(group);
    });
  });
  const std::string output = program.rest();
  EXPECT_TRUE(output.starts_with("rank 2 threw an exception: no data here")) << output;
  for (const char* rank : {"rank 0", "rank 1"}) {
    expect_contains(output,
                    rank + std::string(" gave up: its connection to another rank was closed"));
  }
  EXPECT_EQ(WEXITSTATUS(program.status()), 1);
}

TEST(Launch, NoRankSurvivesAnInterrupt) {
  Program program([] {
    return launch({.world_size = 2}, [](RankContext&) {
      say("ready\n");
      for (;;) {
        pause();
      }
    });
  });
  EXPECT_EQ(program.line(), "ready\n");
  EXPECT_EQ(program.line(), "ready\n");
  program.interrupt();
  EXPECT_EQ(program.rest(), "") << "the output ends only when all ranks have";
  EXPECT_TRUE(WIFSIGNALED(program.status()));
}

TEST(StageLibrary, SaysHowToBuildAMissingOne) {
  const auto library = stage_library("solutions", "09_no_such_stage");
  const std::string error = testing::error_of([&] { load_stage_library(library); });
  expect_contains(error, "make test STAGE=09 IMPL=solutions");
  expect_contains(error, library.string());
}

TEST(StageLibrary, SaysWhatTheLoaderSaysOfABrokenOne) {
  const std::string error = testing::error_of([] { load_stage_library("/proc/self/environ"); });
  expect_contains(error, "cannot load /proc/self/environ");
}

TEST(GlooBackend, ItsDevicesThreadTakesNoCoreFromOthers) {
  testing::expect_plain_ranks_pass({.world_size = 1}, [](RankContext& context) {
    const ProcessGroupPtr group = make_gloo_group(context);
    int patient = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      patient += sched_getscheduler(std::stoi(thread.path().filename())) == SCHED_BATCH ? 1 : 0;
    }
    EXPECT_EQ(patient, 1);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER) << "the rank's own thread is as it was";
  });
}

// The cores that this thread may use: 1 for each that it may.
at::Tensor allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  at::Tensor cores = at::zeros({CPU_SETSIZE}, at::kInt);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    cores[core] = CPU_ISSET(core, &allowed) ? 1 : 0;
  }
  return cores;
}

TEST(Cores, EachRankHasItsOwn) {
  if (allowed_cores().sum().item<int>() < 2) {
    GTEST_SKIP() << "this process may use one core alone";
  }
  testing::expect_plain_ranks_pass({.world_size = 2}, [](RankContext& context) {
    const at::Tensor before = allowed_cores();
    const ProcessGroupPtr group = make_gloo_group(context);
    keep_to_own_cores(context.rank, context.world_size);
    const at::Tensor own = allowed_cores();
    EXPECT_EQ(own.sum().item<int>(), before.sum().item<int>() / 2);
    const at::Tensor users = own.clone();
    all_reduce(users, group);
    EXPECT_EQ(users.max().item<int>(), 1) << "two ranks share a core";
    EXPECT_TRUE(users.le(before).all().item<bool>()) << "a core that the process may not use";
  });
}

TEST(Cores, MoreRanksThanCoresShareThem) {
  const at::Tensor before = allowed_cores();
  keep_to_own_cores(0, CPU_SETSIZE + 1);
  EXPECT_TRUE(allowed_cores().equal(before));
}

using Variables = std::map<std::string, std::string>;

std::optional<LaunchEnvironment> launched(const Variables& variables) {
  return read_launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// The message of the error caused by reading these variables.
std::string error_of(const Variables& variables) {
  return testing::error_of<c10::ValueError>([&] { launched(variables); });
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"}};
TEST(Environment, NothingSetIsNoLauncher) {
  EXPECT_FALSE(launched({}).has_value());
  EXPECT_FALSE(launched({{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}}).has_value());
  EXPECT_FALSE(launched({{"RANK", ""}, {"WORLD_SIZE", ""}}).has_value());
}

TEST(Environment, ReadsWhatTorchrunSets) {
  const auto environment = launched(kTorchrun).value();
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.world_size, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_addr, "node0");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_FALSE(environment.store_is_served);
  EXPECT_TRUE(
      launched(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->store_is_served);
  EXPECT_EQ(launched(with(kTorchrun, {{"LOCAL_RANK", ""}}))->local_rank, 5) << "on one machine";
}

TEST(Environment, NamesTheVariableThatIsMissing) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = kTorchrun;
    variables.erase(name);
    testing::expect_contains(error_of(variables), std::string("no ") + name);
  }
}

TEST(Environment, NamesTheVariableThatMakesNoSense) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"RANK", "one"},          {"WORLD_SIZE", "8x"}, {"LOCAL_RANK", "-1"},   {"RANK", "8"},
      {"MASTER_PORT", "70000"}, {"WORLD_SIZE", "0"},  {"MASTER_PORT", "http"}};
  for (const auto& [name, value] : wrong) {
    const std::string error = error_of(with(kTorchrun, {{name, value}}));
    testing::expect_contains(error, name + "=");
    testing::expect_contains(error, value);
  }
}

std::chrono::milliseconds wait_with(const char* given) {
  return longest_wait(std::chrono::minutes(2), [&](const char* name) {
    return std::string(name) == "DDP_LAB_TIMEOUT_S" ? given : nullptr;
  });
}

TEST(Environment, TheLongestWaitCanBeShortened) {
  EXPECT_EQ(wait_with(nullptr), std::chrono::minutes(2));
  EXPECT_EQ(wait_with("5"), std::chrono::seconds(5));
  EXPECT_EQ(wait_with("500"), std::chrono::minutes(2));
  EXPECT_THROW(wait_with("0"), c10::ValueError);
  EXPECT_THROW(wait_with("long"), c10::ValueError);
}

TEST(Addresses, OfThisMachine) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(route_to("127.0.0.1", 1).here, "127.0.0.1");
  EXPECT_EQ(route_to("no-such-host.invalid", 1).here, "");
  for (const char* own : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback(own)) << own;
  }
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

}  // namespace
}  // namespace ddp
