#include "ddp/ranks/confine.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <tuple>

#include "ddp/ranks/rank_process.h"

namespace ddp {

namespace fs = std::filesystem;

namespace {

// More than any body needs, and little enough for several ranks.
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

// Code, and tables that the loader has filled, stay what and where they are. Linux 6.10 and newer;
// without it, nothing mends what was overwritten: no memory becomes executable again.
void seal_what_is_loaded() {
  constexpr int kMemorySeal = 462;  // on every architecture; headers may be older
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::array<char, 5> rights{};
    const int found = std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights.data());
    if (found == 3 && rights[1] == '-' && line.find('/') != std::string::npos) {
      syscall(kMemorySeal, begin, end - begin, 0);
    }
  }
}

// Root's, inside a namespace or out of it.
void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  check(syscall(SYS_capset, &header, none.data()) == 0, "capset");
}

void let_read(int rules, const fs::path& path) {
  const FileDescriptor file(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (file.get() < 0) {
    return;  // not on every machine
  }
  landlock_path_beneath_attr rule{};
  rule.parent_fd = file.get();
  rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
  rule.allowed_access |= fs::is_directory(path) ? LANDLOCK_ACCESS_FS_READ_DIR : 0;
  check(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0,
        "landlock_add_rule");
}

// Other processes' memory in /proc is closed to it, too. Nothing is written in any case.
void limit_reading(const fs::path& library) {
  landlock_ruleset_attr handled{};
  handled.handled_access_fs =
      LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE;
  const FileDescriptor rules(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0)));
  if (rules.get() < 0) {
    return;  // tools/grading/strangers/sandbox.py says so
  }
  for (const fs::path& path : {library, fs::path("/proc"), fs::path("/sys/devices/system"),
                               fs::path("/dev/null"), fs::path("/dev/urandom")}) {
    let_read(rules.get(), path);
  }
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  check(syscall(SYS_landlock_restrict_self, rules.get(), 0) == 0, "landlock_restrict_self");
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

void confine(const fs::path& library) {
  seal_what_is_loaded();
  limit_memory();
  drop_capabilities();
  limit_reading(library);
  report_what_is_forbidden();
  forbid_system_calls();
}

}  // namespace ddp
