"""Attacks, in C++ that is run when a rank loads the stage's library: docs/attacks.md has what stops each.

$victim is a file that anybody may write, $marker one that is not there, $library the attack itself; $solution is the
solution's source, $built its library, and $activity a file of the tests.
"""

from __future__ import annotations

HEADERS = """
    dlfcn errno fcntl pthread signal stdio stdlib string unistd linux/filter linux/seccomp sys/mman sys/personality
    sched sys/prctl sys/ptrace sys/shm sys/socket sys/stat sys/syscall sys/uio
    """
# frame(): what a rank's harness tells its parent. mapped(): where a library is loaded, by a part of its path.
TOOLS = (
    "".join(f"#include <{header}.h>\n" for header in HEADERS.split())
    + """
static void frame(const char* text, char kind) {
  const unsigned length = strlen(text);
  write(3, &kind, 1);
  write(3, &length, 4);
  write(3, text, length);
}
static char* mapped(const char* name, const char* rights) {
  FILE* maps = fopen("/proc/thread-self/maps", "r");
  char line[512], found[8];
  unsigned long begin;
  while (fgets(line, sizeof(line), maps))
    if (sscanf(line, "%lx-%*x %4s", &begin, found) == 2 && !strcmp(found, rights) && strstr(line, name))
      return (char*)begin;
  abort();
}
"""
)

# post(): an event in the rank's mailbox, as if the tests had told it.
POST = r"""
#include "ddp/referee/mailbox.h"
using enum ddp::EventKind;
static void post(ddp::EventData data, const char* text = "", std::vector<std::int64_t> sizes = {}) {
  using Mailbox = ddp::Mailbox;
  Mailbox box((Mailbox::RanksPart*)mapped("/dev/zero", "rw-s"), (Mailbox::RefereesPart*)mapped("/dev/zero", "r--s"),
              nullptr, 4);
  box.post({data, sizes, "", text});
}
static void go_to(int step) {
  post({.place = {.step = step}});
  post({.kind = kTouch});  // where a buffer is to be touched on purpose, this one was
}
"""
# By name: stage and test, what is told before the solution runs, and why the test then cannot be judged.
FORGED = {
    "a shard of no unit": (
        "07_fully_sharded", "construction_leaves_a_chunk_of_rank_0",
        """post({.kind = kValue, .tensors = 1, .elements = 1, .input_bytes = 4, .index = 1l << 40},
                "initial shard", {1});""", "vector"),
    "a step after the last": (
        "07_fully_sharded", "each_use_is_gathered_and_each_gradient_reduced_once",
        'go_to(1 << 30); post({.kind = kValue}, "gradient");', "vector"),
    "a call of its own": (
        "05_ring_all_reduce", "all_gather_hands_chunk_r_of_rank_r_to_all",
        'go_to(0); post({.kind = kFact}, "call: mine");', 'a rank told "call: " twice'),
}  # fmt: skip

# What is forbidden ends the rank, with a line that says what it was.
FORBIDDEN = r"UNTRUSTED=1: the stage asked the system to {} \("
CAUGHT = {
    "write or change a file": {
        "its own memory through a file": 'open("/proc/self/mem", O_RDWR);',
        "result files": 'fopen("$victim", "w");',
        "another program": 'rename("/proc/self/exe", "$victim");',
        "a file that goes": 'unlink("$victim");',
    },
    "reach into another process": {
        "memory of its parent": """
            char path[40]; sprintf(path, "/proc/%d/mem", getppid()); if (open(path, O_RDONLY) >= 0) _exit(0);
            char byte = 0; iovec part{&byte, 1}; process_vm_writev(getppid(), &part, 1, &part, 1, 0);""",
        "a debugger": "ptrace(PTRACE_ATTACH, getppid(), 0, 0);",
    },
    "signal a process": {
        "ending the grader": "kill(getppid(), SIGKILL);",
        "ending everything": "kill(-1, SIGKILL);",
    },
    "start a process": {
        "survivors": "if (fork() == 0) { setsid(); if (fork() == 0) sleep(600); _exit(0); }",
        "another program instead": 'execl("/bin/sleep", "sleep", "600", nullptr);',
        "a bomb of processes": "for (;;) fork();",
    },
    "use the network": {"the network": "socket(AF_INET, SOCK_STREAM, 0);"},
    # So neither is code made nor other code changed.
    "make memory executable": {
        "memory for code": "mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANON, -1, 0);",
        "memory for code, read only": "mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANON, -1, 0);",
        "shared memory for code": "mmap(0, 4096, 7, MAP_SHARED, 4, 0);",
        "memory that becomes code": "mprotect(mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANON, -1, 0), 4096, 5);",
        "by a key": "pkey_mprotect(mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANON, -1, 0), 4096, 5, -1);",
        "a file in memory": 'memfd_create("code", 0);',
        "a segment": "shmat(0, 0, SHM_EXEC);",
        "a personality": "personality(READ_IMPLIES_EXEC);",
        "a detour in the harness": 'mprotect(mapped("libtests_", "r-xp"), 4096, 7);',
    },
    "filter system calls": {
        "a filter of system calls": """
            sock_filter code[] = {{6, 0, 0, SECCOMP_RET_TRAP}}; sock_fprog program{1, code};
            syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);""",
    },
}

# Of these, and of each kind above the first, a plain run tries all.
PLAIN = ("the solution's source", "the records of the grader", "finished said without a scenario", "memory",
         "operators that nobody observes")  # fmt: skip
# What the others do, and what is said of the test.
OTHERS = {
    "signals that are ignored": ("signal(SIGSYS, SIG_IGN); kill(-1, SIGKILL);", "SIGSYS"),
    "an older call for filters": (
        """sock_filter code[] = {{6, 0, 0, SECCOMP_RET_TRAP}}; sock_fprog program{1, code};
           if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) perror("refused"); abort();""",
        "refused: Operation not permitted"),
    "data that is jumped to": ("static char code[16] = {(char)0xc3}; ((void (*)())code)();", "SIGSEGV"),
    "its own page where the harness was": (  # mremap() would move code without making any
        """void* own = mapped("libstage.so", "r-xp"); char* other = mapped("libtests_", "r-xp");
           if (mremap(own, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, other) == MAP_FAILED) perror("stays");
           abort();""",
        "stays: Function not implemented"),
    "tables that the loader has filled": (
        'if (mprotect(mapped("libtests_", "r--p"), 4096, 3)) perror("sealed"); abort();',
        "sealed: Operation not permitted"),
    "a judge that waits for a rank": (
        'if (fcntl(4, F_SETFL, 0)) perror("refused"); abort();', "refused: Operation not permitted"),
    "another process's clock": (
        'timespec now; if (clock_gettime(~getppid() * 8 + 2, &now)) perror("refused"); abort();',
        "refused: Invalid argument"),
    "another process's threads": (
        'if (sched_getscheduler(getppid()) < 0) perror("refused"); abort();', "refused: No such process"),
    "a signal without a name": ("kill(getpid(), SIGRTMIN + 7);", "signal 41 .SIGRT"),
    "a name that is gigabytes long when spelled out": (
        r"""static char text[1024], name[512]; int end = sprintf(name, "_Z1f1AIiiE");
           for (const char* c = "0123456789ABCDEFGHIJKLMNOPQRS"; *c; ++c)
             end += sprintf(name + end, "S_IS%c_S%c_E", *c, *c);
           sprintf(text, "x 0 %s", name); frame(text, 's'); sprintf(text, "$library 0 %s", name); frame(text, 's');
           abort();""",
        "SIGABRT"),
    "tables that are read from their file anew": (
        'if (madvise(mapped("libtests_", "r--p"), 4096, MADV_DONTNEED)) perror("kept"); abort();',
        "kept: Operation not permitted"),
    "holes in what the referee alone writes": (
        'if (madvise(mapped("/dev/zero", "r--s"), 4096, MADV_REMOVE)) perror("kept"); abort();',
        "kept: Operation not permitted"),
    "the solution's source": (
        'perror(fopen("$solution", "r") ? "opened" : "closed"); abort();', "closed: (Permission|No such)"),
    "the tests' files": (
        'perror(fopen("$activity", "r") ? "opened" : "closed"); abort();', "closed: (Permission|No such)"),
    "the records of the grader": (
        r"""const char* text = "{\"event\": \"run_finished\"}\n"; char path[64];
            for (int file = 0; file < 64; ++file) {
              sprintf(path, "/proc/%d/fd/%d", getppid(), file); if (open(path, O_RDONLY) >= 0) _exit(0);
              write(file, text, strlen(text));
            } abort();""",
        "SIGABRT"),
    # Between a rank and those to whom it reports: what passes there gives no points, whoever writes it.
    "what is written everywhere": (
        r'for (int file = 0; file < 256; ++file) { write(file, "f\4\0\0\0true", 9); } _exit(0);', "exit|end"),
    "a stream that writes elsewhere": (
        'stdout->_fileno = 3; stderr->_fileno = 3; fputs("f", stdout); fflush(stdout); _exit(0);', "exit|end|report"),
    "a place that a shell would run": (  # where a rank crashed, its parent asks a program by way of a shell
        "frame(\"$library 0;touch${IFS}$marker f\", 's'); abort();", "SIGABRT"),
    # What a machine has little of; the deadline is short, so that the tests are.
    "a gigabyte of printing": (
        "static char much[1 << 20]; for (int i = 0; i < 1024; ++i) write(1, much, sizeof(much)); abort();",
        "bytes left out"),
    "a flood of reports": (
        "static char much[60000]; for (int i = 0; i < 60000; i += 5) much[i] = 'm';"
        "for (;;) write(3, much, sizeof(much));",
        "has printed more than"),
    "memory": (
        "while (mmap(0, 1 << 24, 3, MAP_PRIVATE | MAP_ANON, -1, 0) != MAP_FAILED) {} perror(0); abort();",
        "Cannot allocate memory"),
    "a bomb of threads": (
        """void* sleep(void*) { return sleep(600), nullptr; }
           [[gnu::constructor]] void attack() {
             pthread_t thread; while (!pthread_create(&thread, 0, sleep, 0)) {} abort();
           }""",
        "SIGABRT"),
    "no end": ("for (volatile int i = 0;; ++i) {}", "hung: nothing was heard of any rank|s of processor time"),
    # Whole libraries.
    "finished said without a scenario": ("""
        static char found[10000][21];  // not on the heap, where it would be found again; a rank has its token twice
        static int count = 0;
        [[gnu::constructor]] static void attack() {
          const char* run = nullptr;
          for (const char* at = mapped("[heap]", "rw-p"); at < (const char*)sbrk(0); ++at) {
            if (*at >= '0' && *at <= '9') { run = run ? run : at; continue; }
            if (run && *at == 0 && at - run >= 16 && at - run <= 20 && count < 10000)
              memcpy(found[count++], run, at - run);
            run = nullptr;
          }
          for (int i = 0; i < count; ++i)
            for (int j = 0; j < i; ++j)
              if (!strcmp(found[i], found[j])) frame(found[i], 'f');
          _exit(0);
        }""", r"without doing what it had to do: of \S+ .* were due, and there were 0"),
    "operators that nobody observes": ("""
        namespace at { void clearCallbacks(); }
        void* deafen(void*) { for (;;) at::clearCallbacks(); }
        [[gnu::constructor]] void attack() { pthread_t thread; pthread_create(&thread, 0, deafen, 0); }""",
        "something has switched off what looks at tensors", "solutions"),
    "the built solution": ("""
        [[gnu::constructor]] void attack() {
          if (!dlopen("$built", RTLD_NOW | RTLD_GLOBAL)) fprintf(stderr, "%s", dlerror());
        }""", "the stage does not define _ZN3ddp", ""),
    "a file as code once all is loaded": ("""
        void* map(void* file) { for (;;) munmap(mmap(0, 4096, 5, 2, (long)file, 0), 4096); }
        [[gnu::constructor]] void attack() {
          pthread_t id; pthread_create(&id, 0, map, (void*)(long)open("$library", O_RDONLY));
        }""", FORBIDDEN.format("make memory executable"), "solutions"),
    "a thread that writes all the time": ("""
        void* say(void*) { for (;;) frame("12345678901234567890", 'f'); }
        [[gnu::constructor]] void attack() { pthread_t id; pthread_create(&id, 0, say, 0); sleep(1); _exit(0); }""",
        "exit|end"),
    "a thread between the rank and its pipe": ("""
        static int ends[2], report;
        static void* pass_on(void*) {
          char bytes[4096];
          for (long count; (count = read(ends[0], bytes, sizeof(bytes))) > 0;) {
            if (bytes[0] == 't' || bytes[0] == 'n') bytes[0] = 'f';
            write(report, bytes, count);
          }
          return nullptr;
        }
        [[gnu::constructor]] void attack() {
          pipe(ends); report = dup(3); dup2(ends[1], 3); pthread_t id; pthread_create(&id, 0, pass_on, 0);
        }""", "."),
    # Wherever both can write: the referee lives, and nothing was handed in.
    **{f"{byte} in memory that is shared with the referee": ("""
        [[gnu::constructor]] void attack() {
          FILE* maps = fopen("/proc/thread-self/maps", "r");
          char line[512], rights[8];
          unsigned long begin, end;
          while (fgets(line, sizeof(line), maps))
            if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3 && !strcmp(rights, "rw-s"))
              memset((void*)begin, BYTE, end - begin);
          _exit(0);
        }""".replace("BYTE", byte), ".") for byte in ("0", "-1")},
}  # fmt: skip
