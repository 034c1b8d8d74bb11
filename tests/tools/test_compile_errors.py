"""What is shown of a compiler's log."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools.grading.compiling.compile_errors import condense, fit
from tools.setup.toolchain import ROOT

AMBIGUOUS_BY_CLANG = f"""\
[1/2] Building CXX object naive_ddp.cpp.o
FAILED: naive_ddp.cpp.o
{ROOT}/assignments/01/x.cpp:6:1: error: call to 'f' is ambiguous
f(1, 2);
^
{ROOT}/assignments/01/x.cpp:3:6: note: candidate function
void f(long a, int b);
     ^
/usr/bin/../lib/gcc/x86_64-linux-gnu/12/../../../../include/c++/12/a.h:4:6: note: candidate function
void f(int a, long b);
     ^
1 error generated.
ninja: build stopped: subcommand failed.
"""
AMBIGUOUS_BY_GCC = f"""\
{ROOT}/assignments/01/x.cpp: In function 'int main()':
{ROOT}/assignments/01/x.cpp:6:2: error: call of overloaded 'f(int, int)' is ambiguous
    6 | f(1, 2);
      | ~^~~~~~
In file included from {ROOT}/assignments/01/x.cpp:1:
{ROOT}/assignments/01/x.h:3:6: note: candidate: 'void f(long int, int)'
    3 | void f(long a, int b);
      |      ^
"""

UNDEFINED = """\
namespace at { float* data(int); }
namespace ddp {
int helper(int x);
struct Worker { virtual int work(); };
int first() { return helper(1); }
int second() { return helper(2); }
Worker* third() { return new Worker; }
float* fourth() { return at::data(3); }
}
"""


class Condensed(unittest.TestCase):
    def test_what_is_nowhere_defined_is_named_once_with_its_line(self) -> None:
        """By each linker that is here, as it speaks today."""
        for linker in filter(shutil.which, ("ld.lld", "ld.bfd")):
            with self.subTest(linker=linker), tempfile.TemporaryDirectory() as folder:
                source = Path(folder, "x.cpp")
                source.write_text(UNDEFINED)
                command = ["c++", "-g1", "-fPIC", "-shared", f"-fuse-ld={linker[3:]}", "-Wl,-z,defs", str(source)]
                done = subprocess.run([*command, "-o", f"{folder}/x.so"], capture_output=True, text=True, check=False)
                text = condense(done.stderr)
                self.assertIn(f"{source}:5: ddp::helper(int) is declared and used, but nowhere defined", text)
                self.assertRegex(text, rf"{source}:\d: vtable for ddp::Worker is nowhere defined: the first virtual")
                self.assertIn(f"{source}:8: at::data(int) is in no library here", text)
                self.assertEqual(len(text.splitlines()), 3)

    def test_only_the_first_errors(self) -> None:
        log = "\n".join(f"{ROOT}/assignments/x.cpp:{n}:1: error: bad\n  {n} | code\n    | ^" for n in range(1, 6))
        text = condense(log)
        self.assertIn("assignments/x.cpp:3:1: error: bad\n  3 | code\n    | ^", text)
        self.assertNotIn("x.cpp:4", text)
        self.assertIn("2 more errors", text)

    def test_the_notes_that_explain_stay(self) -> None:
        self.assertEqual(
            condense(AMBIGUOUS_BY_CLANG).splitlines(),
            [
                "assignments/01/x.cpp:6:1: error: call to 'f' is ambiguous",
                "f(1, 2);",
                "^",
                "assignments/01/x.cpp:3:6: note: candidate function",
                "void f(long a, int b);",
                "     ^",
                "/usr/include/c++/12/a.h:4:6: note: candidate function",
                "void f(int a, long b);",
                "     ^",
            ],
        )
        text = condense(AMBIGUOUS_BY_GCC)
        self.assertIn("6 | f(1, 2);\n      | ~^~~~~~\nassignments/01/x.h:3:6: note: candidate: 'void f(long", text)
        self.assertTrue(text.endswith("3 | void f(long a, int b);\n      |      ^"))

    def test_libtorchs_headers_have_short_names(self) -> None:
        text = condense(f"{ROOT}/.venv/lib/python3.11/site-packages/torch/include/a.h:1:2: error: no\n")
        self.assertEqual(text, "torch/include/a.h:1:2: error: no")

    def test_notes_are_bounded_and_belong_to_their_error(self) -> None:
        notes = "".join(f"a.h:{n}:1: note: candidate\n" for n in range(9))
        text = condense(f"x.cpp:1:1: error: first\nx.cpp:2:1: error: second\n{notes}x.cpp:3:1: warning: third\n")
        self.assertLess(text.index("second"), text.index("note"))
        self.assertEqual(text.count("note: candidate"), 4)
        self.assertIn("[... 5 more notes ...]", text)
        self.assertNotIn("third", text)

    def test_an_error_inside_a_template_names_the_caller(self) -> None:
        log = f"{ROOT}/assignments/x.cpp:8:2:   required from here\n/usr/include/c++/12/vector:9:1: error: no match\n"
        self.assertIn("assignments/x.cpp:8:2:   required from here", condense(log))

    def test_a_full_disk_is_named(self) -> None:
        self.assertIn("The disk is full", condense("fatal error: x.o: No space left on device"))


class Fitted(unittest.TestCase):
    def test_of_a_long_source_line_the_part_that_is_pointed_at(self) -> None:
        for at in (0, 30, 70, 118):
            source = "".join(chr(ord("a") + i % 26) for i in range(120))
            pointer = at * " " + "^~"
            shown = fit(f"x.cpp:1:2: error: it is wrong\n{source}\n{pointer}", 40).split("\n")
            self.assertEqual(len(shown), 3)
            self.assertLessEqual(max(map(len, shown)), 40)
            self.assertEqual(shown[1][shown[2].index("^")], source[at])

    def test_what_fits_stays_as_it_is(self) -> None:
        text = condense(AMBIGUOUS_BY_CLANG)
        self.assertEqual(fit(text, 80), text)
        self.assertEqual(fit("x.cpp:1:2: error: one two three four", 24), "x.cpp:1:2: error: one\n  two three four")
