#include "ddp/ranks/confine.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp/ranks/rank_process.h"

namespace ddp {

namespace fs = std::filesystem;

namespace {

// More than any function needs, and little enough for several ranks.
constexpr rlim_t kMemory = rlim_t{3} << 30;     // beyond what the process has
constexpr rlim_t kFileSize = rlim_t{64} << 20;  // a file in memory counts, too

void check(bool done, const char* what) {
  TORCH_CHECK(done, "untrusted code could not be confined: ", what, ": ", std::strerror(errno));
}

void limit(decltype(RLIMIT_AS) resource, rlim_t most) {
  const rlimit both{most, most};
  check(setrlimit(resource, &both) == 0, "setrlimit");
}

void limit_memory() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit(RLIMIT_AS, pages * sysconf(_SC_PAGESIZE) + kMemory);
  limit(RLIMIT_FSIZE, kFileSize);
}

// Code, and tables that the loader has filled, stay what and where they are. Where the kernel cannot
// seal, nothing mends what was overwritten: no memory becomes executable again.
void seal_what_is_loaded() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::array<char, 5> rights{};
    const int found = std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights.data());
    if (found == 3 && rights[1] == '-' && line.find('/') != std::string::npos) {
      seal_memory(reinterpret_cast<const void*>(begin), end - begin);
    }
  }
}

// Root's, inside a namespace or out of it.
void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  check(syscall(SYS_capset, &header, none.data()) == 0, "capset");
}

// What is opened stays open: a folder of /proc that nobody has open is made anew, without its rule.
void let_read(int rules, const fs::path& path) {
  const int file = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (file < 0) {
    return;  // not on every machine
  }
  landlock_path_beneath_attr rule{};
  rule.parent_fd = file;
  rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
  rule.allowed_access |= fs::is_directory(path) ? LANDLOCK_ACCESS_FS_READ_DIR : 0;
  check(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0,
        "landlock_add_rule");
}

// Of /proc it may read about its own threads, whose sleep a future waits for, and about the machine: no other
// process's files are there. Nothing is written in any case.
void limit_reading(const fs::path& library) {
  landlock_ruleset_attr handled{};
  handled.handled_access_fs =
      LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE;
  const FileDescriptor rules(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0)));
  if (rules.get() < 0) {
    return;  // tools/grading/sandbox/sandbox.py says so
  }
  for (const char* path : {library.c_str(), "/proc/self/task", "/proc/cpuinfo", "/proc/meminfo",
                           "/proc/stat", "/sys/devices/system", "/dev/null", "/dev/urandom"}) {
    let_read(rules.get(), path);
  }
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  check(syscall(SYS_landlock_restrict_self, rules.get(), 0) == 0, "landlock_restrict_self");
}

// The system calls that are allowed, as a program for the kernel's packet filter. What is not on the
// list is forbidden, whichever system calls later kernels add.

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
// Older forms of what other architectures only have as "...at".
constexpr int kOldCalls[] = {SYS_access,    SYS_arch_prctl, SYS_dup2, SYS_epoll_wait,
                             SYS_getrlimit, SYS_lstat,      SYS_pipe, SYS_poll,
                             SYS_readlink,  SYS_select,     SYS_stat, SYS_time};
#else
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

constexpr int kAllowed[] = {
    // Memory. What makes it executable, and advice on it, is below.
    SYS_brk, SYS_membarrier, SYS_msync, SYS_munmap,
    // What is open. Opening is below.
    SYS_close, SYS_close_range, SYS_dup, SYS_dup3, SYS_epoll_create1, SYS_epoll_ctl,
    SYS_epoll_pwait, SYS_eventfd2, SYS_faccessat, SYS_faccessat2, SYS_fadvise64, SYS_fstat,
    SYS_fstatfs, SYS_getcwd, SYS_getdents64, SYS_lseek, SYS_newfstatat, SYS_pipe2, SYS_ppoll,
    SYS_pread64, SYS_pselect6, SYS_pwrite64, SYS_read, SYS_readlinkat, SYS_readv, SYS_statfs,
    SYS_statx, SYS_write, SYS_writev,
    // Threads, time, and the process itself.
    SYS_exit, SYS_exit_group, SYS_futex, SYS_getcpu, SYS_getegid, SYS_geteuid, SYS_getgid,
    SYS_getpid, SYS_getppid, SYS_getrandom, SYS_getrusage, SYS_gettid, SYS_gettimeofday, SYS_getuid,
    SYS_nanosleep, SYS_restart_syscall, SYS_rseq, SYS_rt_sigaction, SYS_rt_sigpending,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_yield, SYS_set_robust_list,
    SYS_set_tid_address, SYS_sigaltstack, SYS_sysinfo, SYS_times, SYS_uname};

// Fail as on a system that lacks them: libraries ask for them and go on without. mremap() could put
// one page of code where another was; realloc() copies where it fails.
constexpr int kAbsent[] = {SYS_clone3, SYS_ioctl, SYS_mremap, SYS_openat2,
                           // Where memory is, and what runs where.
                           SYS_get_mempolicy, SYS_getpriority, SYS_mbind, SYS_mincore,
                           SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_set_mempolicy,
                           SYS_setpriority};

constexpr const char* kProcess = "start a process";
constexpr const char* kSignal = "signal a process";
constexpr const char* kInspect = "reach into another process";
constexpr const char* kChange = "write or change a file";
constexpr const char* kConnect = "use the network";
constexpr const char* kMakeCode = "make memory executable";
constexpr const char* kFilter = "filter system calls";

constexpr std::uint32_t kUpperHalf = 4;  // both processors are little-endian
constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr std::uint32_t kForbid = SECCOMP_RET_TRAP;

constexpr std::uint32_t place_of_argument(int index) {
  return offsetof(seccomp_data, args) + sizeof(std::uint64_t) * index;
}

// The second filter: on top of the first, once all code is loaded. Constants, which are read-only
// when anybody else's code runs.
constexpr sock_filter kNoNewCode[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place_of_argument(2)),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, kForbid),
    BPF_STMT(BPF_RET | BPF_K, kAllow)};
const sock_fprog kNoNewCodeProgram{std::size(kNoNewCode), const_cast<sock_filter*>(kNoNewCode)};

using Code = std::vector<sock_filter>;

// The lower half of an argument: but for addresses, all that is compared here fits into it.
sock_filter load_argument(int index) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place_of_argument(index));
}

sock_filter end(std::uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }

Code append(Code code, const Code& more) {
  code.insert(code.end(), more.begin(), more.end());
  return code;
}

// What is done about a system call; what does not end goes on to the next.
Code about(int system_call, const Code& code) {
  const auto length = static_cast<std::uint8_t>(code.size());
  return append(
      {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(system_call), 0, length)},
      code);
}

Code if_one_of(int index, std::initializer_list<int> values, std::uint32_t otherwise) {
  Code code = {load_argument(index)};
  for (const int value : values) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(value), 0, 1));
    code.push_back(end(SECCOMP_RET_ALLOW));
  }
  code.push_back(end(otherwise));
  return code;
}

Code if_some_bits(int index, std::uint32_t mask, std::uint32_t then, std::uint32_t otherwise) {
  return {load_argument(index), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, mask, 0, 1), end(then),
          end(otherwise)};
}

// Not another process's processor time: such clocks have negative numbers. Of threads the kernel tells only
// those of the process that asks.
Code if_own_clock() {
  constexpr std::uint32_t kOfThread = 4;
  return {load_argument(0), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, CLOCK_TAI + 1, 0, 2),
          BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kOfThread, 1, 0), end(SECCOMP_RET_ERRNO | EINVAL),
          end(kAllow)};
}

// As the loader maps a library's code: from a file, and not to be written. See forbid_new_code().
Code if_loaded() {
  return {load_argument(2), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
          end(kAllow),      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 2, 0),
          load_argument(3), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 1),
          end(kForbid),     end(kAllow)};
}

// The second filter, and no other: one of a stage's could answer what the harness asks the system.
Code if_no_new_code() {
  const auto address = reinterpret_cast<std::uintptr_t>(&kNoNewCodeProgram);
  return {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place_of_argument(2) + kUpperHalf),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(address >> 32), 0, 3),
          load_argument(2),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(address), 0, 1),
          end(kAllow),
          end(kForbid)};
}

Code whole_filter() {
  constexpr std::uint32_t kFail = SECCOMP_RET_ERRNO | EPERM;
  constexpr std::uint32_t kWriting = O_ACCMODE | O_CREAT | O_TRUNC;
  const int self = getpid();
  Code all = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
              end(SECCOMP_RET_KILL_PROCESS),
              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int call : {SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep}) {
    all = append(all, about(call, if_own_clock()));
  }
  for (const int call : kAllowed) {
    all = append(all, about(call, {end(kAllow)}));
  }
  for (const int call : kAbsent) {
    all = append(all, about(call, {end(SECCOMP_RET_ERRNO | ENOSYS)}));
  }
#ifdef SYS_open
  for (const int call : kOldCalls) {
    all = append(all, about(call, {end(kAllow)}));
  }
  all = append(all, about(SYS_open, if_some_bits(1, kWriting, kForbid, kAllow)));
#endif
  all = append(all, about(SYS_openat, if_some_bits(2, kWriting, kForbid, kAllow)));
  all = append(all, about(SYS_mmap, if_loaded()));
  all = append(all, about(SYS_mprotect, if_some_bits(2, PROT_EXEC, kForbid, kAllow)));
  all = append(all, about(SYS_seccomp, if_no_new_code()));
  // No advice that discards: it empties also what is sealed, and shared memory that can only be read.
  all = append(all, about(SYS_madvise, if_one_of(2,
                                                 {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL,
                                                  MADV_WILLNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE},
                                                 kFail)));
  // Threads, but no processes.
  all = append(all, about(SYS_clone, if_some_bits(0, CLONE_THREAD, kAllow, kForbid)));
  // Signals and limits of its own: abort() is one.
  all = append(all, about(SYS_kill, if_one_of(0, {self}, kForbid)));
  all = append(all, about(SYS_tgkill, if_one_of(0, {self}, kForbid)));
  all = append(all, about(SYS_prlimit64, if_one_of(0, {0, self}, kForbid)));
  // Which threads there are in other processes.
  for (const int call :
       {SYS_getpgid, SYS_sched_getaffinity, SYS_sched_getparam, SYS_sched_getscheduler}) {
    all = append(all, about(call, if_one_of(0, {0, self}, SECCOMP_RET_ERRNO | ESRCH)));
  }
  all = append(all, about(SYS_prctl, if_one_of(0, {PR_SET_NAME, PR_GET_NAME}, kFail)));
  // Not who gets a descriptor's signals, nor whether the judge waits at one that it shares with the rank.
  all = append(
      all,
      about(SYS_fcntl, if_one_of(1, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL}, kFail)));
  all.push_back(end(kForbid));
  return all;
}

void filter_all_threads(const sock_fprog& program) {
  TORCH_CHECK(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0,
      "this system cannot limit what untrusted code may do (seccomp): ", std::strerror(errno));
}

// Of all threads of this process.
void forbid_system_calls() {
  Code code = whole_filter();
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  TORCH_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs: ", std::strerror(errno));
  filter_all_threads(program);
}

// What a forbidden system call asks for: "start a process".
const char* purpose_of(int system_call) {
  static const std::vector<std::pair<const char*, std::vector<int>>> purposes = {
      {kProcess, {SYS_clone, SYS_execve, SYS_execveat}},
      {kSignal, {SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_pidfd_send_signal}},
      {kInspect, {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd}},
      {kMakeCode,
       {SYS_mmap, SYS_mprotect, SYS_pkey_mprotect, SYS_memfd_create, SYS_shmat, SYS_personality}},
      {kFilter, {SYS_seccomp}},
      {kChange,
       {SYS_openat, SYS_unlinkat, SYS_renameat2, SYS_mkdirat, SYS_linkat, SYS_truncate,
        SYS_ftruncate, SYS_fchmodat}},
      {kConnect, {SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_sendto, SYS_sendmsg}},
#ifdef SYS_open
      {kProcess, {SYS_fork, SYS_vfork}},
      {kChange, {SYS_open, SYS_creat, SYS_unlink, SYS_rename, SYS_mkdir, SYS_link, SYS_chmod}},
#endif
  };
  for (const auto& [purpose, calls] : purposes) {
    if (std::ranges::find(calls, system_call) != calls.end()) {
      return purpose;
    }
  }
  return "do what computing does not need";
}

// What is done about a crash, see rank_process.cpp.
struct sigaction report_crash {};

void on_forbidden(int signal, siginfo_t* info, void* context) {
  std::array<char, 256> text{};
  const int length =
      std::snprintf(text.data(), text.size(),
                    "UNTRUSTED=1: the stage asked the system to %s (system call %d), "
                    "which a stage may not.\n",
                    purpose_of(info->si_syscall), info->si_syscall);
  std::ignore = write(STDERR_FILENO, text.data(), length);
  report_crash.sa_sigaction(signal, info, context);
}

void report_what_is_forbidden() {
  purpose_of(0);  // makes its table, which a handler should not
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  action.sa_sigaction = on_forbidden;
  check(sigaction(SIGSYS, &action, &report_crash) == 0, "sigaction");
}

}  // namespace

void seal_memory(const void* begin, std::size_t bytes) {
  constexpr int kMemorySeal = 462;  // on every architecture; headers may be older
  syscall(kMemorySeal, begin, bytes, 0);
}

void confine(const fs::path& library) {
  seal_what_is_loaded();
  limit_memory();
  drop_capabilities();
  limit_reading(library);
  report_what_is_forbidden();
  forbid_system_calls();
}

void forbid_new_code() { filter_all_threads(kNoNewCodeProgram); }

}  // namespace ddp
