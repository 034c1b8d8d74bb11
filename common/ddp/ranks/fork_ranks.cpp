#include "ddp/ranks/fork_ranks.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <tuple>

#include "ddp/ranks/rank_output.h"

namespace ddp {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLongestSleep = std::chrono::milliseconds(60'000);
// How long the other ranks have to notice that one has failed, and to say where they are.
constexpr auto kGrace = std::chrono::milliseconds(500);
// What a rank may print, in bytes. A flood takes minutes, and nobody reads it.
constexpr std::uint64_t kFlood = std::uint64_t{16} << 20;
// From the request for a stack to the end of the process.
constexpr auto kStackTime = std::chrono::milliseconds(400);

void require_single_thread() {
  std::error_code error;
  const auto tasks = std::distance(std::filesystem::directory_iterator("/proc/self/task", error),
                                   std::filesystem::directory_iterator{});
  TORCH_CHECK(!error, "cannot look at this process's threads: ", error.message());
  TORCH_CHECK(tasks == 1, "fork_ranks() needs a process without threads, and this one has ", tasks,
              ": use tensors only inside ranks");
}

// This process's children, including adopted ones.
std::vector<pid_t> children() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) {
    pids.push_back(pid);
  }
  return pids;
}

// The end of a new pipe that a rank writes to. The other end is read without waiting.
FileDescriptor open_pipe(FileDescriptor& out, int rank) {
  int ends[2];
  TORCH_CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe for rank ", rank, ": ", std::strerror(errno));
  out = FileDescriptor(ends[0]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return FileDescriptor(ends[1]);
}

// Runs the ranks' processes until all have ended.
class Supervisor {
 public:
  Supervisor(const ForkOptions& options, Companion* companion)
      : options_(options), companion_(companion) {
    if (companion_ == nullptr) {  // whose ranks have no way to each other but through it
      store_ = FileDescriptor(memfd_create("ddp_lab_store", MFD_CLOEXEC));
      TORCH_CHECK(store_.get() >= 0, "no file in memory for the ranks: ", std::strerror(errno));
    }
  }

  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { kill_everything(); }

  void start(const RankFunction& function) {
    std::random_device entropy;
    std::fflush(nullptr);
    for (int rank = 0; rank < options_.world_size; ++rank) {
      children_.emplace_back();
      start_rank(children_.back(), rank, std::to_string(entropy()) + std::to_string(entropy()),
                 function);
    }
  }

  RankReports run() {
    deadline_ = companion_ ? Clock::time_point::max() : Clock::now() + options_.deadline;
    while (std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running(); })) {
      wait_for_news();
      for (Child& child : children_) {
        take_output(child);
        reap(child);
      }
      if (const auto refused = companion_ ? companion_->refused() : std::nullopt) {
        end(children_[refused->rank], refused->reason);
      }
      const auto flooding = std::ranges::find_if(
          children_, [](const Child& child) { return child.running() && child.printed > kFlood; });
      if (const auto hang = companion_ && !stopping_ ? companion_->hang() : std::nullopt) {
        stop(hang->rank, hang->reason);
      } else if (flooding != children_.end() && !stopping_) {
        stop(flooding->result.rank,
             "has printed more than " + std::to_string(kFlood >> 20) +
                 " MiB in one run: a loop that prints without end? Print less");
      } else if (Clock::now() >= deadline_) {
        stop(first_running(), "did not end within " + deadline_text());
      }
    }
    kill_everything();
    return reports();
  }

 private:
  void start_rank(Child& child, int rank, std::string token, const RankFunction& function) {
    const FileDescriptor log_end = open_pipe(child.log, rank);
    const FileDescriptor report_end = open_pipe(child.report, rank);
    if (companion_ != nullptr) {
      child.bell = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      TORCH_CHECK(child.bell.get() >= 0, "no bell for rank ", rank, ": ", std::strerror(errno));
    }
    child.result.rank = rank;
    child.withhold = options_.withhold;
    child.untrusted = options_.untrusted;
    child.token = std::move(token);

    const pid_t parent = getpid();
    child.pid = fork();
    TORCH_CHECK(child.pid >= 0, "cannot start rank ", rank, ": ", std::strerror(errno));
    if (child.pid == 0) {
      run_rank({rank, parent, options_.show_output ? -1 : log_end.get(), report_end.get(),
                store_.get(), child.bell.get(), child.token},
               options_, function);
    }
    child.process = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  }

  void wait_for_news() {
    auto limit = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (companion_ != nullptr) {
      std::vector<pid_t> processes;
      for (const Child& child : children_) {
        processes.push_back(child.pid);
      }
      limit = std::min(limit, companion_->attend(processes));
    }
    std::vector<pollfd> fds;
    for (const Child& child : children_) {
      if (child.running()) {
        // Three of each rank. Output can wait for a companion's visit.
        const int bell_or_log = companion_ ? child.bell.get() : child.log.get();
        const int report = companion_ ? -1 : child.report.get();
        for (const int fd : {child.process.get(), bell_or_log, report}) {
          fds.push_back({fd, POLLIN, 0});
        }
      }
    }
    const auto time = std::clamp(limit, std::chrono::milliseconds(0), kLongestSleep);
    poll(fds.data(), fds.size(), static_cast<int>(time.count()));
    for (std::size_t bell = 1; companion_ && bell < fds.size(); bell += 3) {
      eventfd_t rings = 0;
      if (fds[bell].revents == POLLIN) {
        std::ignore = eventfd_read(fds[bell].fd, &rings);
      }
    }
  }

  void reap(Child& child) {
    int status = 0;
    if (!child.running() || waitpid(child.pid, &status, WNOHANG) != child.pid) {
      return;
    }
    kill(-child.pid, SIGKILL);  // processes that it started
    child.pid = -1;
    take_output(child);
    set_outcome(child, status);
    const RankReport& result = child.result;
    if (companion_ != nullptr) {
      companion_->rank_ended(result.rank, result.outcome == RankOutcome::kFinished);
    }
    if (result.outcome != RankOutcome::kFinished) {
      fail(result.rank);
    }
  }

  // Ends one rank, whatever it says of itself; it may have ended before.
  void end(Child& child, const std::string& reason) {
    child.stop_requested = true;
    child.result.outcome = RankOutcome::kRefused;
    child.result.reason = reason;
    if (child.running()) {
      kill(-child.pid, SIGKILL);
      kill(child.pid, SIGKILL);
    } else {
      fail(child.result.rank);
    }
  }

  // The first failure ends the run; the other ranks get a moment to notice. A rank that gave up
  // because another one failed may be seen to end first, but is not the culprit.
  void fail(int rank) {
    if (culprit_ < 0 && options_.deadline < kNoDeadline) {
      deadline_ = std::min(deadline_, Clock::now() + kGrace);
    }
    if (culprit_ < 0 || (gave_up(culprit_) && !gave_up(rank))) {
      culprit_ = rank;
    }
  }

  bool gave_up(int rank) const { return children_[rank].result.outcome == RankOutcome::kStopped; }

  // First call: asks every running rank for its stack. Second call: kills them.
  void stop(int suspect, const std::string& reason) {
    for (Child& child : children_) {
      if (!child.running()) {
        continue;
      }
      if (stopping_) {
        kill(-child.pid, SIGKILL);
        kill(child.pid, SIGKILL);
      } else {
        child.stop_requested = true;
        child.result.outcome = culprit_ < 0 ? RankOutcome::kTimedOut : RankOutcome::kStopped;
        child.result.reason =
            culprit_ < 0
                ? (child.result.rank == suspect || !companion_ ? reason : "stopped with it")
                : "stopped, because another rank had failed";
        syscall(SYS_tgkill, child.pid, child.pid, stack_request_signal());
      }
    }
    if (culprit_ < 0) {
      culprit_ = suspect;
    }
    stopping_ = true;
    deadline_ = Clock::now() + kStackTime;
  }

  std::string deadline_text() const {
    const auto ms = options_.deadline.count();
    return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
  }

  int first_running() const {
    const auto child = std::ranges::find_if(children_, &Child::running);
    return child == children_.end() ? -1 : child->result.rank;
  }

  // Nothing survives: no rank, no process that a rank started, and no orphan that we adopted.
  void kill_everything() {
    for (Child& child : children_) {
      if (child.running()) {
        kill(-child.pid, SIGKILL);
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
        child.pid = -1;
      }
    }
    for (auto left = children(); !left.empty(); left = children()) {
      for (const pid_t pid : left) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    }
  }

  RankReports reports() {
    RankReports all;
    all.culprit = culprit_;
    for (Child& child : children_) {
      child.result.activity = companion_ ? companion_->activity(child.result.rank) : "";
      child.result.log = child.text.str();
      child.result.stack = name_places(child.stack, options_);
      all.ranks.push_back(std::move(child.result));
    }
    return all;
  }

  const ForkOptions& options_;
  Companion* companion_;
  FileDescriptor store_;
  std::vector<Child> children_;
  Clock::time_point deadline_;
  int culprit_ = -1;
  bool stopping_ = false;
};

}  // namespace

RankReports fork_ranks(const ForkOptions& options, const RankFunction& function,
                       Companion* companion) {
  TORCH_CHECK(options.world_size >= 1 && options.world_size <= 32,
              "1 to 32 ranks can be forked, not ", options.world_size);
  require_single_thread();
  // Adopts the processes that a rank starts and abandons, so that we can end them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Supervisor supervisor(options, companion);
  supervisor.start(function);
  return supervisor.run();
}

namespace {

constexpr int kReasonLines = 10;
constexpr std::size_t kOutputLines = 10;  // of its beginning, and of its end

const char* verb(RankOutcome outcome) {
  switch (outcome) {
    case RankOutcome::kFinished:
      return "finished";
    case RankOutcome::kThrew:
      return "threw an exception";
    case RankOutcome::kSignalled:
      return "died";
    case RankOutcome::kExited:
      return "exited";
    case RankOutcome::kTimedOut:
      return "hung";
    case RankOutcome::kStopped:
      return "gave up";
    case RankOutcome::kRefused:
      return "was ended";
  }
  return "?";
}

// The cause of a rank's end. An exception of libtorch may go on with a line for every backend that
// there is.
std::string beginning_of(const std::string& reason) {
  std::istringstream lines(reason);
  std::string text;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    if (count < kReasonLines) {
      text += (count > 0 ? "\n    " : "") + line;
    }
  }
  const int more = count - kReasonLines;
  return more > 0 ? text + "\n    [... " + std::to_string(more) + " more lines ...]" : text;
}

void describe_rank(std::ostream& out, const RankReport& report) {
  out << "rank " << report.rank << " " << verb(report.outcome);
  if (!report.reason.empty()) {
    out << ": " << beginning_of(report.reason);
  }
  out << "\n";
  for (const std::string& place : report.stack) {
    out << "    at " << place << "\n";
  }
  if (!report.activity.empty()) {
    out << "    last seen: " << report.activity << "\n";
  }
}

bool ended_alike(const RankReport& one, const RankReport& other) {
  return one.outcome == other.outcome && one.reason == other.reason && one.stack == other.stack;
}

}  // namespace

std::string RankReport::printed() const {
  std::vector<std::string> lines;
  std::istringstream text(log);
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  if (lines.empty()) {
    return "";
  }
  std::ostringstream out;
  out << "rank " << rank << " printed:\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i < kOutputLines || i + kOutputLines >= lines.size()) {
      out << "    | " << lines[i] << "\n";
    } else if (i == kOutputLines) {
      out << "    [... " << lines.size() - 2 * kOutputLines << " more lines with VERBOSE=1 ...]\n";
    }
  }
  return out.str();
}

std::string RankReports::describe() const {
  if (ok()) {
    return "";
  }
  std::ostringstream out;
  std::string alike;
  // Which of those that ended alike was seen to end first is chance.
  const RankReport& first = *std::ranges::find_if(
      ranks, [&](const RankReport& report) { return ended_alike(report, ranks[culprit]); });
  describe_rank(out, first);
  out << first.printed();
  for (const RankReport& report : ranks) {
    if (report.rank == first.rank) {
      continue;
    }
    if (ended_alike(report, first)) {
      alike += (alike.empty() ? "" : ", ") + std::to_string(report.rank);
    } else {
      describe_rank(out, report);
    }
  }
  if (!alike.empty()) {
    out << "the same in rank " << alike << "\n";
  }
  return out.str();
}

}  // namespace ddp
