"""Tests of `make update`: what an update replaces, what it leaves alone, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

from tests.tools.release_test import Repository
from tools.course import release
from tools.grading import released
from tools.setup.toolchain import LabError
from tools.student import update

STAGE, HEADER = "assignments/01_sums/sums.cpp", "assignments/01_sums/sums.h"
ANSWERS, GIVEN = "writeup/answers/01_sums.typ", "common/ddp/given.h"
LATER = "2026-10-12T12:00:00+00:00"


class Update(Repository):
    def setUp(self) -> None:
        super().setUp()
        self.old = self.released("mine")
        self.mine = self.top / "mine"

    def new(self, files: dict[str, str | None], date: str = LATER) -> Path:
        """The folder of a newer release, in which these files are different."""
        self.commit(files, date)
        self.released("new")
        return self.top / "new"

    def edit(self, name: str, text: str) -> None:
        (self.mine / name).parent.mkdir(parents=True, exist_ok=True)
        (self.mine / name).write_text(text)

    def update(self, source: Path) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(update.update(source, self.mine), 0)
        return output.getvalue()

    def backup(self, name: str) -> str:
        return next((self.mine / "backup").glob(f"*/{name}")).read_text()

    def assert_refused(self, message: str, source: Path) -> None:
        before = {path: path.read_bytes() for path in self.mine.rglob("*") if path.is_file()}
        with self.assertRaisesRegex(LabError, message):
            update.update(source, self.mine)
        self.assertEqual({path: path.read_bytes() for path in self.mine.rglob("*") if path.is_file()}, before)

    def test_edited_stages_and_answers_survive(self) -> None:
        self.edit(STAGE, "int sum() { return 4; }\n")
        self.edit("assignments/01_sums/mine.h", "// a file of one's own\n")
        self.edit(ANSWERS, "forty-two\n")
        said = self.update(self.new({GIVEN: "int given(int);\n"}))
        self.assertEqual((self.mine / STAGE).read_text(), "int sum() { return 4; }\n")
        self.assertEqual((self.mine / "assignments/01_sums/mine.h").read_text(), "// a file of one's own\n")
        self.assertEqual((self.mine / ANSWERS).read_text(), "forty-two\n")
        self.assertEqual((self.mine / GIVEN).read_text(), "int given(int);\n")
        self.assertEqual(self.backup(STAGE), "int sum() { return 4; }\n")
        self.assertNotIn("stub", said)

    def test_a_file_that_the_lab_no_longer_has_goes_with_its_folder(self) -> None:
        self.update(self.new({GIVEN: None, "common/other.h": "\n"}))
        self.assertFalse((self.mine / "common/ddp").exists())
        self.assertTrue((self.mine / "common/other.h").exists())

    def test_an_edited_file_of_the_lab_is_saved_and_named(self) -> None:
        self.edit(GIVEN, "int taken();\n")
        said = self.update(self.new({GIVEN: "int given(int);\n"}))
        self.assertEqual(self.backup(GIVEN), "int taken();\n")
        self.assertEqual((self.mine / GIVEN).read_text(), "int given(int);\n")
        self.assertIn(f"  {GIVEN}\n", f"{said}\n")

    def test_so_is_an_edited_one_that_goes_and_an_own_one_whose_name_the_lab_takes(self) -> None:
        self.edit(GIVEN, "int taken();\n")
        self.edit("docs/notes.md", "my notes\n")
        said = self.update(self.new({GIVEN: None, "docs/notes.md": "the course's\n"}))
        self.assertEqual((self.backup(GIVEN), self.backup("docs/notes.md")), ("int taken();\n", "my notes\n"))
        self.assertFalse((self.mine / GIVEN).exists())
        for name in (GIVEN, "docs/notes.md"):
            self.assertIn(f"  {name}\n", f"{said}\n")

    def test_a_stub_that_changed_under_an_edit_is_said_and_shown(self) -> None:
        self.edit(STAGE, "int sum() { return 4; }\n")
        said = self.update(self.new({STAGE: "// TODO(student), better\n"}))
        self.assertEqual((self.mine / STAGE).read_text(), "int sum() { return 4; }\n")
        self.assertIn(f"{STAGE} is yours and stays", said)
        self.assertEqual(self.backup(f"{STAGE}.stub-before"), "// TODO(student)\n")
        self.assertEqual(self.backup(f"{STAGE}.stub-now"), "// TODO(student), better\n")

    def test_a_stub_that_nobody_has_edited_is_replaced(self) -> None:
        said = self.update(self.new({STAGE: "// TODO(student), better\n"}))
        self.assertEqual((self.mine / STAGE).read_text(), "// TODO(student), better\n")
        self.assertNotIn("is yours", said)

    def test_a_changed_header_is_said_and_the_old_one_kept(self) -> None:
        said = self.update(self.new({HEADER: "long sum();\n"}))
        self.assertIn(f"{HEADER} has changed", said)
        self.assertEqual(self.backup(HEADER), "int sum();\n")

    def test_the_same_release_repairs_and_saves_each_edit(self) -> None:
        for text in ("first\n", "second\n"):
            self.edit(GIVEN, text)
            (self.mine / HEADER).unlink()
            self.released(text)
            said = self.update(self.top / text)
            self.assertEqual(list(self.old.differing(self.mine)), [])
            self.assertIn(GIVEN, said)
        saved = sorted(path.read_text() for path in (self.mine / "backup").glob(f"*/{GIVEN}"))
        self.assertEqual(saved, ["first\n", "second\n"])

    def test_an_archive_is_taken_too_and_nothing_is_left_of_it(self) -> None:
        new = self.new({GIVEN: "int given(int);\n"})
        archive = self.top / "new.tar.gz"
        release.write_archive(new, released.load(new), archive)
        self.update(archive)
        self.assertEqual((self.mine / GIVEN).read_text(), "int given(int);\n")
        self.assertEqual(list(self.mine.glob(".update-*")), [])
        whole = archive.read_bytes()
        archive.write_bytes(whole[: len(whole) // 2])
        self.assert_refused("no whole archive|differs or is missing|should have one folder", archive)

    def test_what_it_writes_is_new_for_a_build_however_old_the_release(self) -> None:
        built = (self.mine / STAGE).stat().st_mtime_ns
        new = self.new({GIVEN: "int given(int);\n"})
        os.utime(new / GIVEN, (1, 1))
        self.update(new)
        self.assertGreaterEqual((self.mine / GIVEN).stat().st_mtime_ns, built)

    def test_refuses_what_is_older_another_course_broken_or_no_release(self) -> None:
        new = self.new({GIVEN: "int given(int);\n"})
        good = released.load(new)
        replace(good, date="2026-10-01T00:00:00+00:00").write(new)
        self.assert_refused("older than what is here", new)
        replace(good, name="another").write(new)
        self.assert_refused("a release of another", new)
        good.write(new)
        (new / GIVEN).write_text("half a fi")
        self.assert_refused(f"{GIVEN} differs or is missing", new)
        self.assert_refused("has no release.json", self.root)

    def test_one_that_was_cut_short_is_refused_elsewhere_and_goes_on_here(self) -> None:
        self.edit(GIVEN, "int taken();\n")
        new = self.new({GIVEN: "int given(int);\n", HEADER: "long sum();\n"})
        copy = update.copy_atomically

        def cut_short(source: Path, target: Path) -> None:
            if target == self.mine / GIVEN:
                raise OSError("the power is off")
            copy(source, target)

        with mock.patch.object(update, "copy_atomically", cut_short), self.assertRaises(OSError):
            update.update(new, self.mine)
        self.assertEqual((self.mine / GIVEN).read_text(), "int taken();\n")
        with self.assertRaisesRegex(LabError, "was interrupted"):
            released.load(self.mine)
        self.update(new)
        self.assertEqual(released.load(self.mine), released.load(new))
        self.assertEqual(list(released.load(new).differing(self.mine)), [])
        self.assertEqual((self.backup(GIVEN), self.backup(HEADER)), ("int taken();\n", "int sum();\n"))
