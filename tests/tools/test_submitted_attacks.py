"""Attacks as they are handed in, graded from their text to results, log and page: no point, and no line of a file.

Each is tried in the jail and, where the system has Landlock, without namespaces. tests/tools/attacks.py has what code
that is loaded may try.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from string import Template
from unittest import mock

import pytest

from tests.lab.marks import builds
from tests.tools.conftest import processes_in
from tools.checking.context import Context
from tools.course import grade_submission, hidden
from tools.grading.compiling.confined import confined
from tools.grading.running.test_lists import tests_of
from tools.grading.sandbox import sandbox
from tools.grading.scoring.results import Report
from tools.grading.stages import IMPLEMENTATIONS, named
from tools.setup.toolchain import ROOT

STAGE = "03_bucketed_ddp"
SEED = 424242424
# One whose scenario calls the stage, and is short.
TESTED = next(spec for spec in tests_of(named(STAGE)) if spec.name == "plan_follows_the_rules")
pytestmark = builds(named(STAGE), *IMPLEMENTATIONS)
SOLUTION = ROOT / "solutions" / STAGE / "bucketed_ddp.cpp"
LIBRARY = ROOT / "build/stages/solutions" / STAGE / "libstage.so"
# A file that a student must not read: C++, so that a compiler can be made to quote it.
SECRET = "int kept_from_students = 918273645;\n"

BEGINNING = '#include "03_bucketed_ddp/bucketed_ddp.h"\n'
# The stage, whose function says `text`.
SAYS = (
    BEGINNING
    + """
#include <string>
namespace ddp {
std::string said();
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>&, std::int64_t) {
  TORCH_CHECK(false, said());
}
std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor>, std::vector<at::Tensor>,
                                                        ProcessGroupPtr, const BucketedDdpOptions&) {
  TORCH_CHECK(false, said());
}
}  // namespace ddp
"""
)
# find(): a function of a library that is loaded, by what its name begins with.
WALK = (
    BEGINNING
    + r"""
#include <elf.h>
#include <cstring>
#include "ddp/collectives.h"
namespace ddp {
static void* find(const void* in, const char* name) {
  auto* base = reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(in) & ~4095ul);
  while (std::memcmp(base, "\177ELF", 4) != 0) base -= 4096;
  auto* head = reinterpret_cast<const Elf64_Ehdr*>(base);
  auto* part = reinterpret_cast<const Elf64_Phdr*>(base + head->e_phoff);
  const Elf64_Dyn* dynamic = nullptr; const Elf64_Sym* symbols = nullptr; const char* names = nullptr;
  for (int i = 0; i < head->e_phnum; ++i)
    if (part[i].p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const Elf64_Dyn*>(base + part[i].p_vaddr);
  for (; dynamic->d_tag; ++dynamic) {
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Elf64_Sym*>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
  }
  for (auto* at = symbols; reinterpret_cast<const char*>(at) < names; ++at)
    if (at->st_value && !std::strncmp(names + at->st_name, name, std::strlen(name)))
      return const_cast<char*>(base + at->st_value);
  TORCH_CHECK(false, "no ready answer is here");
}
void (*const inside)(at::Tensor, const ProcessGroupPtr&, int) = &broadcast;
"""
)
SYSTEM_CALL = 'extern "C" { static long call(long, ...) __attribute__((weakref("sys" "call"))); }\n'
SILENT = "std::string ddp::said() { return std::string(); }"
BOMB = '#define A0 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"\n' + "".join(
    f"#define A{n} A{n - 1} A{n - 1}\n" for n in range(1, 27)
)

# By name: the code, and what has to be said of it.
ATTACKS = {
    "a marker in a raw string": ('const char* kText = R"(\n# 1 "/usr/include/x.h" 1\n)";\n#include "$solution"',
                                 "not found|No such file|[Pp]ermission"),
    "a line directive": ('#line 1 "/usr/include/x.h"\n#include "$solution"', "not found|No such file|[Pp]ermission"),
    "another translation": ('#if __has_include("/proc/self/fd/4")\n#include "$solution"\n#endif',
                            "does not define|[Pp]ermission"),
    "poison": (f'{BEGINNING}#pragma GCC poison finish launch index check\n#include "$solution"',
               "not found|No such file|[Pp]ermission"),
    "an included secret": ('#include "$secret"\n#error kept_from_students', "error"),
    "an embedded secret": (SAYS + 'static const char kText[] = {\n#embed "$secret"\n, 0};\n'
                           "std::string ddp::said() { return kText; }", "error"),
    "an assembler's file": (SAYS + 'asm(".global mine\\nmine: .incbin \\"$secret\\"\\n.byte 0\\n");\n'
                            'extern "C" const char mine[];\nstd::string ddp::said() { return mine; }', "error"),
    "a dependent library": ('#pragma comment(lib, "$object")', "does not define|unable to find|No such"),
    "an object by a linker's option": ('#pragma comment(lib, "$library")', "does not define|unable to find|No such"),
    "a name that is no pattern": (f'{BEGINNING}extern "C" {{ static int f() __attribute__((weakref("x(["))); }}\n'
                                  "int (*volatile kept)() = f;", r"uses x\(\["),
    "a name that a terminal obeys": (f'{BEGINNING}int f() __asm__("\\033[2Jx");\nint g() {{ return f(); }}',
                                     "nowhere defined|uses"),
    "tensors in static variables": (f"{BEGINNING}char* room() {{ static char bytes[1 << 20]; return bytes; }}",
                                    "static variables of 10.*of 65536 allowed"),
    "macros that double": (f"{BOMB}const char* text = A26;", "was given|error"),
    "a compiler that crashes": (f"{BEGINNING}#pragma clang __debug crash", "error|does not define|PLEASE"),
    "its own map": (SYSTEM_CALL + SAYS + """
        std::string ddp::said() {
          char text[400] = {}; const long file = call(257, -100, "/proc/self/maps", 0);
          call(0, file, text, 300); return text[0] ? "kept_from_students" : "nothing";
        }""", "nothing"),
    "the grader's command line": (SYSTEM_CALL + SAYS + """
        std::string ddp::said() {
          std::string all, path = "/proc/" + std::to_string(call(110)) + "/cmdline"; char text[4000] = {};
          call(0, call(257, -100, path.c_str(), 0), text, 3999);
          for (char& letter : text) all += letter ? letter : ' ';
          return "read: " + all;
        }""", "read:"),
    "what lies beside the environment": (SAYS + """
        std::string ddp::said() {
          std::string all; const char* at = std::getenv("PATH");
          for (const char* from = at - 3000; from < at + 200; ++from) all += *from > 31 && *from < 127 ? *from : ' ';
          return "read: " + all;
        }""", "read:|withheld|died"),
    "frames of another library": (SYSTEM_CALL + BEGINNING + """
        #include <cstdio>
        #include <cstdlib>
        namespace ddp {
        std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>&, std::int64_t) {
          for (unsigned offset = 0x9000; offset < 0xb000; offset += 0x40) {
            char text[300]; const unsigned length = std::snprintf(text, sizeof(text), "$library %x ?", offset);
            call(1, 3, "s", 1); call(1, 3, &length, 4); call(1, 3, text, length);
          }
          std::abort();
        }
        std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(
            std::vector<at::Tensor> p, std::vector<at::Tensor>, ProcessGroupPtr, const BucketedDdpOptions&) {
          assign_buckets(p, 1); return nullptr;
        }
        }""", "died"),
    "a walk to a baseline": (WALK + """
        using Plan = std::vector<std::vector<std::size_t>> (*)(const std::vector<at::Tensor>&, std::int64_t);
        std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& p, std::int64_t cap) {
          return reinterpret_cast<Plan>(find(reinterpret_cast<const void*>(inside), "_ZN3ddp12plan_buckets"))(p, cap);
        }
        std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(
            std::vector<at::Tensor> p, std::vector<at::Tensor>, ProcessGroupPtr, const BucketedDdpOptions&) {
          assign_buckets(p, 1); return nullptr;
        }
        }""", "no ready answer is here|died"),
    "an edge case of its own": (WALK + """
        using Fact = void (*)(void*, const std::string&, std::int64_t, std::int64_t);
        std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& p, std::int64_t) {
          static char recorder[4096];
          auto fact = reinterpret_cast<Fact>(find(reinterpret_cast<const void*>(inside), "_ZN3ddp8Recorder4factE"));
          fact(recorder, "edge case: mine", 1, -1);
          return {};
        }
        std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(
            std::vector<at::Tensor> p, std::vector<at::Tensor>, ProcessGroupPtr, const BucketedDdpOptions&) {
          return nullptr;
        }
        }""", "."),
    "the plan, by its header": (BEGINNING + '#include "ddp/plans/bucket_plan.h"',
                                "not found|No such file|[Pp]ermission"),
}  # fmt: skip
PLAIN = ("a marker in a raw string", "an included secret", "a dependent library", "a walk to a baseline")
# What a stage without namespaces can still tell, and a compiler: whether a file is there.
JAILED = {
    "whether a file is there": ('#if __has_include("$secret")\n#error kept_from_students\n#endif', "does not define")
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def place(folder: Path, context: Context, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where one stage is graded by one test, with a folder for what is temporary."""
    context.provide_activity(named(STAGE))
    monkeypatch.setattr(grade_submission, "all_stages", lambda: (named(STAGE),))
    monkeypatch.setattr(grade_submission, "TestLists", mock.Mock(return_value=mock.Mock(of=lambda program: [TESTED])))
    (folder / "tmp").mkdir(mode=0o755)
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    return folder


def graded(code: str, folder: Path, *options: str) -> tuple[Report, str]:
    """And what is written of it."""
    places = {"solution": SOLUTION, "secret": folder / "secret.h", "library": LIBRARY,
              "object": f"CMakeFiles/solutions_{STAGE}.dir/{SOLUTION.relative_to(ROOT)}.o"}  # fmt: skip
    (folder / "secret.h").write_text(SECRET)
    (folder / "submission").mkdir()
    (folder / "submission/bucketed_ddp.cpp").write_text(Template(code).safe_substitute(places))
    (folder / "out").mkdir()
    given = [str(folder / "submission"), f"--out={folder}/out/results.json", *options]
    report = grade_submission.run(grade_submission.parse_arguments(given))
    return report, "".join(path.read_text() for path in sorted((folder / "out").iterdir()))


def failures_of(report: Report) -> str:
    return "\n".join(text for result in report.results for text in result.failures)


@pytest.mark.parametrize("jail", ["jail", "Landlock alone"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in PLAIN else [pytest.mark.slow]) for name in ATTACKS | JAILED]
)
def test_it_gains_nothing_and_reads_nothing(
    name: str, jail: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    if jail != "jail":
        if name in JAILED:
            pytest.skip("without namespaces it is told")
        monkeypatch.setattr(sandbox, "_with_namespaces", lambda program: sandbox.Sandbox())
    code, says = (ATTACKS | JAILED)[name]
    report, written = graded(code, place, f"--seed={SEED}")
    said = (written + capsys.readouterr().out).replace("#error kept_from_students", "")
    assert report.sums.score == 0
    assert re.search(says, failures_of(report)), failures_of(report)
    for secret in ("918273645", "BucketedDdp::", f"seed={SEED}", "\033[2J", "edge case: mine"):
        assert secret not in said
    assert list((place / "tmp").iterdir()) == [] and processes_in(place) == []


def test_what_ranks_say_is_withheld_where_the_seed_is_secret(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(hidden, "seed", lambda: SEED)
    code = "#include <cstdio>\n" + SAYS + 'std::string ddp::said() { std::puts("rank_printed"); return "rank_threw"; }'
    report, written = graded(code, place)
    said = written + capsys.readouterr().out
    assert "threw an exception: its text is withheld" in failures_of(report)
    assert not re.search(f"rank_printed|rank_threw|bucketed_ddp.cpp:|{SEED}", said)


def test_debug_information_names_no_other_file(place: Path) -> None:
    """Or its names would be read there when a place is looked up."""
    link = 'asm(".section .gnu_debugaltlink,\\"\\",@progbits\\n.asciz \\"/x.debug\\"\\n.zero 20\\n.text");\n'
    with confined(sandbox.make_sandbox(Path("/bin/true"))) as room:
        assert room.build(named(STAGE), {"bucketed_ddp.cpp": f"{link}{SAYS}{SILENT}".encode()}) == ("", "")
        sections = subprocess.run(["objdump", "-h", str(room.library(named(STAGE)))], capture_output=True, text=True)
    assert ".debug_info" in sections.stdout and "debugaltlink" not in sections.stdout
