"""make test SANITIZE=: a build of its own, the student's lines, and no grade.

What sanitizers find is made up here; `make check SANITIZE=address` holds them to it.
"""

from __future__ import annotations

import json

from tests.tools.grading_test import ALL_PASS, STAGE, GraderTest
from tools.grading.other_ways import sanitizer_reports

SOURCE = f"assignments/{STAGE}/naive_ddp.cpp"
OVERFLOW = f"""\
=================================================================
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60600 at pc 0x7f4 bp 0x7ff sp 0x7fd
WRITE of size 4 at 0x60600 thread T0
    #0 0x7f4ac in at::vec() {{root}}/.venv/lib/torch/include/ATen/vec.h:215
    #1 0x7f4ad in copy {{root}}/common/ddp/collectives.cpp:124
    #2 0x7f4ad in fill {{root}}/{SOURCE}:24
    #3 0x7f4ae in finish {{root}}/{SOURCE}:30
    #4 0x7f4af in run {{root}}/tests/support/body.cpp:63

SUMMARY: AddressSanitizer: heap-buffer-overflow
"""
REPORTS = """
import re
def report(text, pid):
    (path,) = re.findall(r'log_path="(.*?)"', os.environ["ASAN_OPTIONS"])
    open(f"{{path}}.{{pid}}", "w").write(text)
report({text!r}, 7)
def run(name): return {{'status': {status!r}, 'failures': ['rank 1 died']}}
"""


class Sanitized(GraderTest):
    def setUp(self) -> None:
        super().setUp()
        state = json.loads((self.checkout.root / "build/toolchain.json").read_text())
        self.checkout.script("g++", f"#!/bin/sh\necho {self.checkout.write('libasan.so', '')}\n")
        state["toolchain"]["cxx"] = str(self.checkout.root / "g++")
        self.checkout.write("build/toolchain.json", json.dumps(state))

    def watched(self, text: str, status: str, *arguments: str) -> str:
        code = REPORTS.format(text=text.format(root=self.checkout.root), status=status)
        done = self.grade(code, "--stage=01", "--sanitize=address", *arguments)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stdout

    def test_a_finding_has_the_students_lines(self) -> None:
        said = self.watched(OVERFLOW, "failed")
        self.assertIn("ERROR: AddressSanitizer: heap-buffer-overflow\nWRITE of size 4 thread T0\n", said)
        self.assertIn(f"    {SOURCE}:24 in fill\n    {SOURCE}:30 in finish\n", said)
        for other in ("vec.h", "collectives.cpp", "body.cpp", "no line of it is in your files"):
            self.assertNotIn(other, said)
        self.assertIn("SANITIZE=address found 1, see above", said)
        self.assertRegex(said, "again +make test STAGE=01 TEST=broadcasts_rank_0 SEED=\\d+\\s+SANITIZE=address")

    def test_one_without_them_is_the_labs(self) -> None:
        said = self.watched(OVERFLOW.replace(SOURCE, "common/ddp/hooks.cpp"), "passed")
        self.assertIn("    common/ddp/collectives.cpp:124 in copy\n", said)
        self.assertIn("no line of it is in your files", said)

    def test_it_is_no_grade_and_has_a_build_of_its_own(self) -> None:
        self.grade(ALL_PASS, "--stage=01")
        before = self.checkout.results()
        said = self.watched(OVERFLOW, "failed")
        self.assertEqual((self.checkout.results(), self.checkout.kept_score()), (before, 15))
        self.assertIn("SANITIZE=address: no grade", said)
        self.assertIn("No grade. For that: make test STAGE=01\n", said)
        self.assertNotIn("Total", said)
        cache = (self.checkout.root / "build/sanitized/CMakeCache.txt").read_text()
        self.assertEqual(cache, f"SANITIZE:STRING={sanitizer_reports.ADDRESS.flag}")
        self.assertIn(ALL_PASS, (self.checkout.root / "build/stages/assignments" / STAGE / "libstage.so").read_text())

    def test_how_long_it_takes_is_said_first(self) -> None:
        said = self.watched(OVERFLOW, "failed").partition("ddp-lab")[0]
        self.assertRegex(" ".join(said.split()), r"takes about \d+ min on \d+ cores? this first time")
        self.assertIn("several times as long", " ".join(said.split()))
        self.assertNotIn("first time", self.watched(OVERFLOW, "failed"))

    def test_nothing_found(self) -> None:
        for choice in ("address", "undefined"):
            self.watched(OVERFLOW, "failed")  # whose reports don't stay
            done = self.grade(ALL_PASS, "--stage=01", f"--sanitize={choice}")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"SANITIZE={choice} found nothing.", done.stdout)
            self.assertIn("3 of 3 tests passed.", done.stdout)
        done = self.grade("def run(name): return {'status': 'failed'}", "--stage=01", "--sanitize=address")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no mistake of yours", done.stdout)

    def test_what_does_not_compile(self) -> None:
        done = self.grade("does not compile", "--stage=01", "--sanitize=address")
        self.assertEqual(done.returncode, 1)
        self.assertIn("naive_ddp.cpp:12:5: error: 'gruop' was not declared", done.stdout)
        self.assertNotIn("no mistake of yours", done.stdout)

    def test_choices(self) -> None:
        for arguments, said in (
            (["--sanitize=thread"], "SANITIZE=thread is not one of: address, undefined"),
            (["--sanitize=address", "--untrusted"], "SANITIZE=address does not go with UNTRUSTED=1"),
            (["--sanitize=address", "--device=cuda"], "SANITIZE=address does not go with DEVICE=cuda"),
        ):
            done = self.grade(ALL_PASS, *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
        self.checkout.script("g++", "#!/bin/sh\necho libasan.so\n")
        done = self.grade(ALL_PASS, "--sanitize=address")
        self.assertEqual(done.returncode, 3)
        self.assertIn("has no AddressSanitizer and UndefinedBehaviorSanitizer here", done.stderr)
