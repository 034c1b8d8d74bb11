"""What of a submission is taken and what is refused, how long it may run, and how its grade is read elsewhere."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from tools.course.grade_submission import SECRET, Budget, Shown, shown_results
from tools.course.submission import LARGEST_SOURCE, collect, printable_path
from tools.course.submission import Submission as Taken
from tools.grading.running.waiting_clock import Look, seconds_between
from tools.grading.scoring.results import Report, StageReport, Status, TestResult, TestSpec
from tools.grading.stages import all_stages
from tools.student.course import parse
from tools.student.submit import packed

FIRST, FIFTH = "01_naive_ddp", "05_ring_all_reduce"
PLACE = f"assignments/{FIRST}/naive_ddp.cpp"
SPIN, SLEEP = "while True: pass", "import time; time.sleep(1000)"
PATIENCE_S = 60
SEED = 123456789


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder that was handed in."""
    (tmp_path / "submission").mkdir()
    return tmp_path / "submission"


def put(place: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content.encode() if isinstance(content, str) else content)


def zipped(*entries: tuple[str, bytes], mode: int = 0) -> bytes:
    """Of entries of a name and a content; of another kind of file than a regular one by `mode`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path, content in entries:
            entry = zipfile.ZipInfo(path)
            entry.external_attr = mode << 16
            file.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def test_files_are_taken_by_name_wherever_they_lie(place: Path) -> None:
    put(place, {"my work/naive_ddp.cpp": "mine", f"writeup/answers/{FIRST}.typ": "my answer"})
    put(place, {"notes/CMakeLists.txt": "not asked for", f"assignments/{FIRST}/naive_ddp.h": "the instructor's"})
    found = collect(place)
    assert (found.sources, found.answers, found.notes) == ({FIRST: b"mine"}, {FIRST: b"my answer"}, [])
    put(place, {f"lab/{PLACE}": "in the stage's folder", f"solutions/{FIRST}/naive_ddp.cpp": "no student's"})
    found = collect(place)
    assert found.sources == {FIRST: b"in the stage's folder"}
    assert found.notes == [f"lab/{PLACE} was taken, and not my work/naive_ddp.cpp."]


def test_files_of_ones_own_are_taken_beside_it(place: Path) -> None:
    """As `make submit` packs them. A header of the lab's is not one's own."""
    for folder in (f"assignments/{FIRST}", f"assignments/{FIFTH}"):
        put(place, {f"{folder}/{name}": folder for name in (
            "naive_ddp.cpp", "ring_all_reduce.cpp", "naive_ddp.h", "more.cpp", "more.h", "notes.txt")})  # fmt: skip
    found = collect(place)
    assert found.beside[FIRST] == {name: f"assignments/{FIRST}".encode() for name in ("more.cpp", "more.h")}
    assert found.beside[FIFTH].keys() == {"more.cpp", "more.h"}


@pytest.mark.parametrize("name", ["n" * 300 + ".h", "new\nline.h", "\x1b]0;title\x07.cpp"])
def test_names_that_no_file_should_have_are_passed_over(name: str, place: Path) -> None:
    with zipfile.ZipFile(place / "a.zip", "w") as archive:
        archive.writestr(f"{FIRST}/naive_ddp.cpp", "int one;")
        archive.writestr(f"{FIRST}/{name}", "int two;")
    assert collect(place).beside[FIRST] == {}


def test_archives_are_looked_into(place: Path) -> None:
    second = packed({f"assignments/{FIFTH}/ring_all_reduce.cpp": b"as make submit packs it"})
    put(place, {"handin.zip": zipped((f"handin/{PLACE}", b"from a zip")), "second.zip": second})
    fifth = {FIFTH: b"as make submit packs it"}
    assert collect(place).sources == {FIRST: b"from a zip"} | fifth
    assert collect(place / "second.zip").sources == fifth


LINK_OR_DEVICE, LEADS_OUT = "it is a link or a device", "its name leads out of the archive"


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("naive_ddp.cpp", b" " * (LARGEST_SOURCE + 1), "naive_ddp.cpp was not taken: it is larger than 256 KiB"),
        ("handin.zip", zipped(("naive_ddp.cpp", bytes(100 << 20))), "it is larger than 256 KiB"),
        ("handin.zip", zipped((PLACE, b"/etc/passwd"), mode=stat.S_IFLNK), LINK_OR_DEVICE),
        ("handin.zip", zipped(("../../naive_ddp.cpp", b"up")), LEADS_OUT),
        ("handin.zip", zipped(("/tmp/naive_ddp.cpp", b"root")), LEADS_OUT),
        ("handin.zip", b"hello", "handin.zip was not taken: it is not a zip archive that can be read"),
    ],
)
def test_what_is_refused_is_said(place: Path, name: str, content: bytes, note: str) -> None:
    put(place, {name: content})
    found = collect(place)
    assert found.sources == {}
    assert note in "\n".join(found.notes)


def test_links_and_devices_are_refused(place: Path) -> None:
    (place / "naive_ddp.cpp").symlink_to(__file__)
    (place / "away").symlink_to("/")
    os.mkfifo(place / "ring_all_reduce.cpp")
    found = collect(place)
    assert (found.sources, [LINK_OR_DEVICE in note for note in found.notes]) == ({}, [True] * 3)


def test_notes_on_a_multitude_are_few_and_printable(place: Path) -> None:
    put(place, {"handin.zip": zipped(*((f"{number}/../naive_ddp.cpp", b"") for number in range(6_000)))})
    found = collect(place)
    assert found.sources == {}
    assert "more notes like these were left out" in found.notes[-1]
    assert len(found.notes) < 30
    assert printable_path("a\x1b[31m\n\udc80ü") == "a?[31m?\\udc80\\xfc"
    assert len(printable_path("x" * 5000)) < 130


def child_of_a_child(code: str) -> list[str]:
    return [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"]


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        (Look(1010, 70, True), 10),  # spins on an idle machine, with two cores
        (Look(1010, 51, True), 1),  # spins on a busy one
        (Look(1010, 50, False), 10),  # sleeps
        (Look(1010, 49, True), 0),  # lost a process while it was looked at
    ],
)
def test_time_stands_still_for_those_who_wait_for_a_processor(now: Look, seconds: float) -> None:
    assert seconds_between(Look(1000, 50, True), now) == seconds


@pytest.mark.parametrize("code", [SPIN, SLEEP])
def test_what_spins_or_sleeps_ends(code: str) -> None:
    stopping = threading.Event()
    with Budget(1, look_s=0.05).part(1, stopping) as part:
        with subprocess.Popen(child_of_a_child(code), start_new_session=True) as process:
            stopped = stopping.wait(PATIENCE_S)
            os.killpg(process.pid, signal.SIGKILL)
    assert stopped
    assert part.exceeded


@pytest.mark.parametrize(
    ("seconds", "takes", "allowed", "exceeded"),
    [
        (220, [(500, 9)] * 5, 184, False),  # the machine had little time for it, which costs nothing
        (100, [(20, 10), (95, 91)], 90, True),  # a share of what is left
    ],
)
def test_a_part_of_the_limit(seconds: float, takes: list[tuple[float, float]], allowed: float, exceeded: bool) -> None:
    """With looks that see what they are told: how far the clock and the processor have gone."""
    now, looks = Look(1000, 50, True), 0

    def told() -> Look:
        nonlocal looks
        looks += 1
        return now

    budget = Budget(seconds, told, 0.001)
    for left, (clock, processor) in zip(range(len(takes), 0, -1), takes):
        stopping = threading.Event()
        with budget.part(left, stopping) as part:
            now = Look(now.clock + clock, now.processor + processor, True)
            seen, end = looks + 2, time.monotonic() + PATIENCE_S
            while looks < seen and not stopping.is_set() and time.monotonic() < end:
                time.sleep(0.001)
        assert (part.exceeded, stopping.is_set()) == (exceeded and left == 1,) * 2
    assert part.allowed == allowed


def a_report() -> Report:
    stage = all_stages()[0]
    tests = [
        TestResult(TestSpec("a_claim", 2, file=f"tests/{stage.name}/claims.cpp"), Status.PASSED,),
        TestResult(TestSpec("a_secret_claim", 3, file=f"tests/{stage.name}/hidden.more.cpp"), Status.FAILED,
                   failures=[f"with seed {SEED}, not 1{SEED}{'x' * 100_000}"]),
        TestResult(TestSpec("never_begun", 1)),
    ]  # fmt: skip
    return Report("assignments", "cpu", SEED, [StageReport(stage, tests)])


def shown(report: Report, secret: bool = True, **fields: object) -> dict:
    taken = Taken(answers={"01_naive_ddp": b""}, notes=["x.zip was not taken: why."])
    return json.loads(json.dumps(shown_results(report, Shown(parse(json.dumps(fields)), taken, secret))))


def test_gradescopes_schema_and_a_secret_seed_is_nowhere() -> None:
    found = shown(a_report())
    assert (found["score"], [test["status"] for test in found["tests"]]) == (2, ["passed", "failed", "failed"])
    assert len(found["tests"][1]["output"]) < 25_000, "a long output is cut"
    text = json.dumps(found)
    assert f"with seed {SECRET}, not {SECRET}x" in text, "a guess is blanked as the seed is"
    assert str(SEED) not in text


def test_visibility() -> None:
    assert [test["visibility"] for test in shown(a_report())["tests"]] == ["visible", "after_published", "visible"]
    found = shown(a_report(), visibility={"tests": "after_due_date", "hidden": "hidden", "stdout": "visible"})
    assert [test["visibility"] for test in found["tests"]] == ["after_due_date", "hidden", "after_due_date"]


def test_no_other_test_names_a_hidden_one() -> None:
    report = a_report()
    seen, secret, _ = report.results
    secret.scenarios, seen.scenarios = ["five ranks", "two ranks"], ["two ranks"]
    seen.failures = ['"five ranks" (5 ranks) hung: see a_secret_claim', 'in "two ranks": wrong']
    seen.notes = ["so far judged without 1 run: for a weight that is listed twice see a secret claim"]
    visible, withheld, _ = shown(report)["tests"]
    assert 'a hidden test (5 ranks) hung: see a hidden test\n\nin "two ranks": wrong' in visible["output"]
    assert "secret" not in json.dumps(visible) and "five" not in json.dumps(visible)
    assert withheld["extra_data"]["test"] == "a_secret_claim"
    (page, *_) = Shown(parse("{}"), Taken(), secret=False).page(report)
    assert "secret" not in str([(result.failures, result.notes) for result in page.results])
