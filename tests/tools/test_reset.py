"""make reset: the stub again, from the release or from git, and nothing of the student's lost."""

from __future__ import annotations

import contextlib
import io
from unittest import mock

from tests.tools.release_test import Repository, git
from tools.grading import stages
from tools.grading.stages import BadChoice
from tools.setup.toolchain import LabError
from tools.student import reset

SOURCE, KEPT = "assignments/01_sums/sums.cpp", "assignments/01_sums/sums.cpp.before-reset-"
STUB, MINE = "// TODO(student)\n", "int sum() { return 4; }\n"


class Reset(Repository):
    def setUp(self) -> None:
        super().setUp()
        self.released("mine")
        self.mine = self.top / "mine"
        for module, name, value in (
            (stages, "ROOT", self.mine), (reset, "BUILD_DIR", self.mine / "build"), (reset, "ROOT", self.mine)
        ):  # fmt: skip
            self.enterContext(mock.patch.object(module, name, value))
        stages.all_stages.cache_clear()
        self.addCleanup(stages.all_stages.cache_clear)
        self.edit(MINE)

    def edit(self, text: str, name: str = SOURCE) -> None:
        (self.mine / name).write_text(text)

    def text(self, name: str = SOURCE) -> str:
        return (self.mine / name).read_text()

    def reset(self) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(reset.reset(stages.named("01_sums"), self.mine), 0)
        return output.getvalue()

    def without_release(self) -> None:
        (self.mine / "release.json").unlink()

    def committed(self) -> None:
        git(self.mine, "add", "-A")
        git(self.mine, "commit", "-q", "-m", "work")

    def test_the_stub_is_there_and_the_file_beside_it(self) -> None:
        said = self.reset()
        self.assertEqual((self.text(), self.text(KEPT + "1")), (STUB, MINE))
        self.assertIn(f"{SOURCE} is kept as sums.cpp.before-reset-1", said)
        self.assertIn(f"mv {KEPT}1 {SOURCE}", said)

    def test_what_was_kept_is_never_overwritten(self) -> None:
        self.reset()
        self.edit("int sum() { return 5; }\n")
        self.reset()
        self.assertEqual((self.text(KEPT + "1"), self.text(KEPT + "2")), (MINE, "int sum() { return 5; }\n"))
        self.edit(MINE)
        self.reset()
        self.assertEqual([self.text(KEPT + number) for number in "123"], [MINE, "int sum() { return 5; }\n", MINE])

    def test_a_stub_stays(self) -> None:
        self.reset()
        self.assertIn("Nothing to do", self.reset())
        self.assertFalse((self.mine / (KEPT + "2")).exists())

    def test_a_file_that_is_gone_comes_back(self) -> None:
        (self.mine / SOURCE).unlink()
        self.reset()
        self.assertEqual(self.text(), STUB)

    def test_more_files_of_ones_own_are_kept_and_not_compiled(self) -> None:
        self.edit("int more();\n", "assignments/01_sums/more.cpp")
        self.edit("int more();\n", "assignments/01_sums/more.h")
        self.reset()
        self.assertEqual(self.text("assignments/01_sums/more.cpp.before-reset-1"), "int more();\n")
        names = sorted(path.name for path in (self.mine / "assignments/01_sums").iterdir())
        self.assertEqual([name for name in names if name.endswith((".cpp", ".h"))], ["more.h", "sums.cpp", "sums.h"])

    def test_from_git_it_is_the_newest_stub(self) -> None:
        self.without_release()
        git(self.mine, "init", "-q")
        for text in ("// an older one, TODO(student)\n", "// TODO(student): sums\n", MINE, MINE + "// done\n"):
            self.edit(text)
            self.committed()
        self.reset()
        self.assertEqual((self.text(), self.text(KEPT + "1")), ("// TODO(student): sums\n", MINE + "// done\n"))

    def test_nobody_has_the_stub(self) -> None:
        self.without_release()
        for begins in (lambda: None, lambda: git(self.mine, "init", "-q"), self.committed):  # with what was written
            begins()
            with self.assertRaisesRegex(LabError, "No commit here has the stub of stage 01, and there is no release"):
                self.reset()
            self.assertEqual(self.text(), MINE)

    def test_choices(self) -> None:
        for number, said in (("", "make reset STAGE=02"), ("7", "STAGE=7 is not one of: 01_sums")):
            with self.assertRaisesRegex(BadChoice, said):
                reset.reset_as_asked(number)
        self.assertEqual(self.text(), MINE)
