"""The page of a CI's job: points, what did not pass, and whose copy of the lab has judged."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.release_test import GIVEN, HEADER, Student
from tools.grading import released, stages
from tools.grading.compiling import stale
from tools.grading.strangers import job_page


@pytest.fixture
def student(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Student:
    """Who is graded in a clone of the release."""
    for module in (stages, stale):
        monkeypatch.setattr(module, "ROOT", tmp_path / "mine")
    monkeypatch.setattr(job_page.released, "load", lambda load=released.load: load(tmp_path / "mine"))
    monkeypatch.setattr(job_page.released, "edited", lambda edited=released.edited: edited(tmp_path / "mine"))
    monkeypatch.setattr(job_page, "all_stages", lambda: [stages.Stage("01_sums", "01", "sums", 3)])
    return Student(tmp_path, capsys)


def a_test(name: str, status: str, points: int, visibility: str = "visible") -> dict[str, Any]:
    passed = status == "passed"
    return {"name": f"01 {name}", "status": "passed" if passed else "failed", "score": points * passed,
            "max_score": points, "visibility": visibility, "output": "" if passed else "twice <the> mean\nand more",
            "extra_data": {"stage": "01_sums", "status": status}}  # fmt: skip


def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    """The page, and what GitHub Classroom is told."""
    tests = [a_test("first", "failed", 10), a_test("secret", "passed", 5, "hidden"), a_test("report", "passed", 0)]
    (folder / "results.json").write_text(json.dumps({"tests": tests}))
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        (folder / name).unlink(missing_ok=True)
        monkeypatch.setenv(name, str(folder / name))
    monkeypatch.setattr(sys, "argv", ["job_page", str(folder / "results.json")])
    assert job_page.write() == 0
    encoded = (folder / "GITHUB_OUTPUT").read_text().strip().removeprefix("result=")
    return (folder / "GITHUB_STEP_SUMMARY").read_text(), json.loads(base64.b64decode(encoded))


def test_points_and_what_did_not_pass(student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, reported = written(tmp_path, monkeypatch)
    assert "| 01 sums | 5 / 15 | 1 of 2 |\n| **all** | 5 / 15 | 1 of 2 |\n\nGraded by this repository's own" in page
    assert "<details><summary>01 first: failed</summary>\n<pre>twice &lt;the&gt; mean\nand more</pre>" in page
    assert "secret" not in page + json.dumps(reported), "the course shows it later"
    assert (reported["status"], reported["max_score"]) == ("fail", 15)
    assert [(test["score"], test["message"]) for test in reported["tests"]] == [
        (0, "failed: twice <the> mean"),
        (5, ""),
    ]


def test_an_edited_copy_gives_no_points(student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student.edit({GIVEN: "int taken();\n", "README.md": "# My lab\n", "assignments/01_sums/mine.h": "int mine();\n"})
    student.commit_all()
    student.edit({HEADER: None, "tests/01_sums/more.cpp": "int more();\n"})
    page, reported = written(tmp_path, monkeypatch)
    listed = [line for line in page.splitlines() if line.startswith("- `")]
    assert listed == [f"- `{name}`" for name in (HEADER, GIVEN, "tests/01_sums/more.cpp")]
    assert "**These points do not count**" in page
    assert (reported["status"], sum(test["score"] for test in reported["tests"])) == ("error", 0)
