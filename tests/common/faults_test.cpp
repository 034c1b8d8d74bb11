// What happens to a rank without its code being wrong: it is killed or stopped, and resources end.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <new>
#include <vector>

#include "common/checks.h"
#include "common/referee_runs.h"
#include "ddp/collectives.h"
#include "ddp/libtorch_versions.h"

namespace ddp {
namespace {

using testing::expect_contains;

using CollectiveCall = std::function<WorkPtr(int rank, const ProcessGroupPtr&)>;

// One of each kind, by three ranks.
std::vector<CollectiveCall> operations() {
  const auto message = [](int from, int to) {
    return [=](int rank, const ProcessGroupPtr& group) -> WorkPtr {
      return rank == from ? send_async(at::ones({3}), to, group)
             : rank == to ? recv_async(at::ones({3}), from, group)
                          : nullptr;
    };
  };
  return {[](int, const auto& group) { return all_reduce_async(at::ones({3}), group); },
          [](int, const auto& group) {
            std::vector<at::Tensor> tensors = {at::ones({3})};
            return group->broadcast(tensors, {.rootRank = 1});
          },
          [](int, const auto& group) {
            at::Tensor gathered = at::ones({9});
            at::Tensor own = at::ones({3});
            return ((*group).*kAllGatherSingle)(gathered, own, {});
          },
          [](int, const auto& group) {
            at::Tensor own = at::ones({3});
            at::Tensor all = at::ones({9});
            return ((*group).*kReduceScatterSingle)(own, all, {});
          },
          message(0, 1),
          message(1, 2),
          [](int, const auto& group) { return group->barrier(); }};
}

// Rank 1 does `fault` at one operation, before its launch or before its wait.
Evidence run_with_fault(std::size_t at, bool launched, const std::function<void()>& fault) {
  return run_as({.ranks = 3}, [&](const auto& client, const auto& group) {
    const std::vector<CollectiveCall> all = operations();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool here = client->rank() == 1 && i == at;
      if (here && !launched) {
        fault();
      }
      const WorkPtr work = all[i](client->rank(), group);
      if (here) {
        fault();
      }
      if (work != nullptr) {
        work->wait();
      }
    }
  });
}

bool has_children() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

TEST(Faults, ARankKilledAtAnyOperationIsTheCulprit) {
  for (std::size_t at = 0; at < operations().size(); ++at) {
    const bool launched = at % 2 == 1;
    SCOPED_TRACE("operation " + std::to_string(at) + (launched ? ", launched" : ""));
    const auto begin = std::chrono::steady_clock::now();
    const Evidence evidence = run_with_fault(at, launched, [] { kill(getpid(), SIGKILL); });
    const std::string text = evidence.reports.describe();
    ASSERT_EQ(evidence.reports.culprit, 1) << text;
    EXPECT_EQ(evidence.reports.ranks[1].outcome, RankOutcome::kSignalled);
    expect_contains(text, "SIGKILL");
    expect_contains(text, "rank 1 has failed");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_FALSE(has_children());
  }
}

TEST(Faults, AStoppedRankIsNamed) {
  for (const bool launched : {false, true}) {
    const Evidence evidence = run_with_fault(3, launched, [] { raise(SIGSTOP); });
    const std::string text = evidence.reports.describe();
    ASSERT_EQ(evidence.reports.culprit, 1) << text;
    expect_contains(text, "rank 1 hung: was stopped by a signal");
    EXPECT_FALSE(has_children());
  }
}

TEST(Faults, OutOfMemorySaysHowMuchWasAskedFor) {
  const Evidence of_torch =
      run_with_fault(0, false, [] { at::empty({std::int64_t{1} << 50}, at::kByte); });
  expect_contains(of_torch.reports.describe(), "can't allocate memory");
  const Evidence of_the_library =
      run_with_fault(0, false, [] { ::operator delete(::operator new (std::size_t{1} << 50)); });
  expect_contains(of_the_library.reports.describe(), "there is no memory of the size");
}

TEST(Faults, ARankWithoutDescriptorsGoesOn) {
  const Evidence evidence = run_with_fault(2, false, [] {
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    TORCH_CHECK(errno == EMFILE, "another problem");
  });
  EXPECT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
}

// Lets this process have as many descriptors as it has now, and some more.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(0);
    close(next);
    const rlimit few{static_cast<rlim_t>(next + more), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(Faults, AParentWithFewDescriptorsManagesOrSaysSo) {
  std::string refusal = "not tried";
  for (int more = 0; more <= 40 && !refusal.empty(); more += 2) {
    const FewDescriptors few(more);
    try {
      refusal = run_with_fault(0, false, [] {}).reports.describe();
    } catch (const c10::Error& error) {
      refusal = error.what_without_backtrace();
    }
    EXPECT_TRUE(refusal.empty() || refusal.find("Too many open files") != std::string::npos)
        << refusal;
    EXPECT_TRUE(more > 0 || !refusal.empty());
    EXPECT_FALSE(has_children());
  }
  EXPECT_EQ(refusal, "");
}

// The ranks' parent is killed in the middle of a run.
TEST(Faults, RanksDoNotOutliveTheirParent) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    run_as({.ranks = 3}, [&](const auto& client, const auto& group) {
      barrier(group);
      if (client->rank() == 0) {
        kill(getppid(), SIGKILL);
      }
      pause();
    });
    _exit(0);
  }
  close(ends[1]);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFSIGNALED(status));
  // Ranks close what they do not know, but not before they run: the end comes when all have ended.
  char nothing = 0;
  EXPECT_EQ(read(ends[0], &nothing, 1), 0);
  close(ends[0]);
  while (waitpid(-1, nullptr, 0) > 0) {  // this process adopts orphans: all of them end
  }
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace ddp
