"""Kinds of attacks on graders that are known in public, as far as they have a meaning here: each earns nothing.

docs/attacks.md has the list. Like those in test_untrusted_attacks.py, they begin where the look at the code is passed
already: in a constructor, inside the jail and outside.
"""

from __future__ import annotations

import ctypes
import unittest

from tests.tools.test_untrusted_attacks import (
    FRAME,
    STAGE,
    Attack,
    on_load,
    setUpModule,  # noqa: F401  it skips where nothing is built
)
from tools.grading.stages import named

SYS_MSEAL = 462
FORBIDDEN = r"UNTRUSTED=1: the stage asked the system to {} \("
# Where the loaded code of a library begins; `name` is part of its path.
CODE_OF = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <errno.h>
static char* mapped(const char* name, const char* rights) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512], found[8];
  unsigned long begin;
  while (fgets(line, sizeof(line), maps))
    if (sscanf(line, "%lx-%*x %4s", &begin, found) == 2 && !strcmp(found, rights) && strstr(line, name))
      return (char*)begin;
  abort();
}
"""


class NewCode(Attack):
    """No memory becomes executable, so that neither code is made nor other code changed."""

    def assert_caught(self, code: str, what: str = "make memory executable") -> None:
        self.assert_nothing_gained(CODE_OF + on_load(code), FORBIDDEN.format(what))

    def test_memory_for_code(self) -> None:
        self.assert_caught("mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANON, -1, 0);")
        self.assert_caught("mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANON, -1, 0);")
        self.assert_caught("mmap(0, 4096, 7, MAP_SHARED, 4, 0);")

    def test_memory_that_becomes_code(self) -> None:
        self.assert_caught("void* page = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANON, -1, 0); mprotect(page, 4096, 5);")
        self.assert_caught("pkey_mprotect(mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANON, -1, 0), 4096, 5, -1);")

    def test_other_ways_to_code(self) -> None:
        self.assert_caught('memfd_create("code", 0);')
        self.assert_caught("shmat(0, 0, SHM_EXEC);")
        self.assert_caught("personality(READ_IMPLIES_EXEC);")

    def test_a_file_as_code_once_all_is_loaded(self) -> None:
        code = CODE_OF + "void* map(void* file) { for (;;) munmap(mmap(0, 4096, 5, 2, (long)file, 0), 4096); }"
        library = self.folder / "libstage.so"
        code += on_load(f'pthread_t id; pthread_create(&id, 0, map, (void*)(long)open("{library}", O_RDONLY));')
        self.assert_nothing_gained(code, FORBIDDEN.format("make memory executable"), beside="solutions")

    def test_data_that_is_jumped_to(self) -> None:
        self.assert_nothing_gained(on_load("static char code[16] = {(char)0xc3}; ((void (*)())code)();"), "SIGSEGV")

    def test_a_detour_in_the_harness(self) -> None:
        self.assert_caught('mprotect(mapped("libtests_", "r-xp"), 4096, 7);')

    def test_a_page_of_ones_own_where_the_harness_was(self) -> None:
        """mremap() would move code without making any."""
        code = 'void* own = mapped("libstage.so", "r-xp"); char* other = mapped("libtests_", "r-xp");'
        code += 'if (mremap(own, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, other) == MAP_FAILED) perror("stays");'
        self.assert_nothing_gained(CODE_OF + on_load(code + " abort();"), "stays: Function not implemented")

    @unittest.skipIf(ctypes.CDLL(None).syscall(SYS_MSEAL, 0, 0, 0), "Linux 6.10 and newer seal memory")
    def test_tables_that_the_loader_has_filled(self) -> None:
        code = 'if (mprotect(mapped("libtests_", "r--p"), 4096, 3)) perror("sealed"); abort();'
        self.assert_nothing_gained(CODE_OF + on_load(code), "sealed: Operation not permitted")


class Interposing(Attack):
    """Between a rank and those to whom it reports. What passes there gives no points, whoever writes it."""

    def test_a_filter_of_system_calls(self) -> None:
        filters = "sock_filter code[] = {{6, 0, 0, SECCOMP_RET_TRAP}}; sock_fprog program{1, code};"
        call = "syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);"
        self.assert_nothing_gained(CODE_OF + on_load(filters + call), FORBIDDEN.format("filter system calls"))
        call = 'if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) perror("refused"); abort();'
        self.assert_nothing_gained(CODE_OF + on_load(filters + call), "refused: Operation not permitted")

    def test_what_is_written_everywhere(self) -> None:
        code = 'for (int file = 0; file < 256; ++file) { write(file, "f\\4\\0\\0\\0true", 9); } _exit(0);'
        self.assert_nothing_gained(on_load(code), "exit|end")

    def test_a_thread_that_writes_all_the_time(self) -> None:
        code = FRAME + "void* say(void*) { for (;;) frame(\"12345678901234567890\", 'f'); }"
        code += on_load("pthread_t id; pthread_create(&id, 0, say, 0); sleep(1); _exit(0);")
        self.assert_nothing_gained(code, "exit|end")

    def test_a_thread_between_the_rank_and_its_pipe(self) -> None:
        code = """
        static int ends[2], report;
        static void* pass_on(void*) {
          char bytes[4096];
          for (long count; (count = read(ends[0], bytes, sizeof(bytes))) > 0;) {
            if (bytes[0] == 't' || bytes[0] == 'n') bytes[0] = 'f';
            write(report, bytes, count);
          }
          return nullptr;
        }"""
        code += on_load(
            "pipe(ends); report = dup(3); dup2(ends[1], 3); pthread_t id; pthread_create(&id, 0, pass_on, 0);"
        )
        self.assert_nothing_gained(code, ".")

    def test_a_stream_that_writes_elsewhere(self) -> None:
        code = on_load('stdout->_fileno = 3; stderr->_fileno = 3; fputs("f", stdout); fflush(stdout); _exit(0);')
        self.assert_nothing_gained(code, "exit|end|report")

    def test_memory_that_is_shared_with_the_referee(self) -> None:
        """Zeros, then ones, wherever both can write: the referee lives, and nothing was handed in."""
        for byte in ("0", "-1"):
            code = f"""
            static void scribble() {{
              FILE* maps = fopen("/proc/self/maps", "r");
              char line[512], rights[8];
              unsigned long begin, end;
              while (fgets(line, sizeof(line), maps))
                if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3 && !strcmp(rights, "rw-s"))
                  memset((void*)begin, {byte}, end - begin);
            }}"""
            self.assert_nothing_gained(code + on_load("scribble(); _exit(0);"), ".")


class Answers(Attack):
    """What is expected, and the verdict, are in no rank's memory, and in no file that one can read."""

    def test_the_records_of_the_grader(self) -> None:
        verdict = '{\\"event\\": \\"run_finished\\"}\\n'
        code = f'const char* text = "{verdict}"; char path[64];'
        code += "for (int file = 0; file < 64; ++file) {"
        code += 'sprintf(path, "/proc/%d/fd/%d", getppid(), file); if (open(path, O_RDONLY) >= 0) _exit(0);'
        code += "write(file, text, strlen(text)); } abort();"
        self.assert_nothing_gained(on_load(code), "SIGABRT")

    def test_the_tests_sources(self) -> None:
        source = named(STAGE).sources("solutions")[0].parents[2] / "tests" / STAGE / "signs_of_life.json"
        code = on_load(f'perror(fopen("{source}", "r") ? "opened" : "closed"); abort();')
        self.assert_nothing_gained(code, "closed: Permission denied")
