"""The page of a run: what is on it, that a student's text stays text, and that no run depends on it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tools.grading.page import pictures, report_page
from tools.grading.scoring.results import Report, StageReport, Status, TestResult, TestSpec
from tools.grading.stages import find_stages

SCRIPT = "<script>alert(1)</script>"


def span(name: str, begin: int, end: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "begin": begin, "end": end, **more}


def picture(**more: Any) -> dict[str, Any]:
    """Two ranks, of which the second launches an all-reduce too early."""
    lanes = [
        {
            "name": f"rank {rank}",
            "parts": [span("forward", 0, 300), span("backward", 300, 900)],
            "computing": [span("backward layer 1", 300, 600)],
            "operations": [span("all-reduce of layer 1", 650, 900, launched=610 - 200 * rank, bytes=400)],
        }
        for rank in range(2)
    ]
    mark = {"lane": 1, "operation": 0, "at": 410, "kind": "launched too early", "text": "rank 1, step 0: ..."}
    return {"title": "two layers", "charts": [{"caption": "what happened", "end": 900, "lanes": lanes, "marks": [mark],
                                               "arrows": []}], **more}  # fmt: skip


def page_of(folder: Path, *results: TestResult, **choices: Any) -> str:
    (stage,) = find_stages("02")
    report = Report("assignments", "cpu", 7, [StageReport(stage, list(results))])
    said = report_page.write(folder / "report.html", report, {}, **choices)
    assert "report.html" in said
    return (folder / "report.html").read_text()


def failed(**more: Any) -> TestResult:
    result = TestResult(TestSpec("backward_never_waits", 4, "a hint"), Status.FAILED, 0.5, ["rank 1 waits"])
    result.picture = more.pop("picture", picture())
    return TestResult(**{**vars(result), **more})


def test_a_failure_has_its_message_commands_hint_and_picture(tmp_path: Path) -> None:
    page = page_of(tmp_path, failed())
    for text in ("0 of 4 points", "rank 1 waits", "a hint", "launched too early",
                 "make test STAGE=02 TEST=backward_never_waits SEED=7",
                 "make debug STAGE=02 RANK=1 TEST=backward_never_waits SEED=7", "TRACE=step.json"):  # fmt: skip
        assert text in page
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page)  # nothing comes from elsewhere
    assert "<script" not in page
    assert "refresh" not in page and "refresh" in page_of(tmp_path, failed(), reload=True)


def test_the_marked_operation_is_the_one_that_is_drawn_marked(tmp_path: Path) -> None:
    (svg,) = re.findall(r"<svg.*?</svg>", page_of(tmp_path, failed()), re.DOTALL)
    tree, space = ElementTree.fromstring(svg), "{http://www.w3.org/2000/svg}"
    (mark,) = [each for each in tree.iter(f"{space}g") if each.get("class") == "mark"]
    frame = next(each for each in mark if each.get("class") == "frame")
    boxes = [each for each in tree.iter(f"{space}rect") if each.get("class") == "operation"]
    assert float(frame.get("y", "")) == pytest.approx(float(boxes[1].get("y", "")) - 2)
    assert mark.findtext(f"{space}title") == "1: launched too early"
    assert mark.findtext(f"{space}desc") == "rank 1, step 0: ..."
    assert mark.get("tabindex") == "0"


def test_what_comes_from_a_student_is_text(tmp_path: Path) -> None:
    drawn = picture(title=SCRIPT, values={"name": SCRIPT, "elements": SCRIPT, "rows": [[SCRIPT, SCRIPT, SCRIPT]]},
                    memory={"name": SCRIPT, "limit": 10, "series": [{"name": SCRIPT, "bytes": 12}]})  # fmt: skip
    chart = drawn["charts"][0]
    chart["caption"] = chart["lanes"][0]["name"] = chart["lanes"][0]["operations"][0]["name"] = SCRIPT
    chart["marks"][0].update(kind=SCRIPT, text=SCRIPT)
    chart["arrows"] = [{"from": 0, "to": 1, "begin": 0, "end": 9, "waits": True, "text": SCRIPT}]
    chart["bar"] = {"begin": 700, "end": 900, "text": SCRIPT}
    page = page_of(tmp_path, failed(failures=[f"threw {SCRIPT}\x1b[31m"], picture=drawn))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 12
    assert "\x1b" not in page


@pytest.mark.parametrize(
    "broken", [{"charts": [{}]}, {"title": "x"}, picture(charts=3), picture(memory={"limit": "x"})]
)
def test_a_picture_that_cannot_be_drawn_is_left_out(tmp_path: Path, broken: dict[str, Any]) -> None:
    page = page_of(tmp_path, failed(picture=broken))
    assert "rank 1 waits" in page and "<svg" not in page


def test_a_page_stays_below_a_megabyte(tmp_path: Path) -> None:
    many = picture()
    many["charts"][0]["lanes"][0]["operations"] = [
        span("all-reduce", at, at + 1, launched=at, bytes=4) for at in range(1500)
    ]
    page = page_of(tmp_path, *[failed(picture=many)] * 4)
    assert len(page.encode()) < 1 << 20
    assert "no room for this test's picture" in page


@pytest.mark.parametrize(
    ("width", "shown"), [(300, "all-reduce #5 of the gradient of layer 12"), (60, "layer 12"), (24, "L12"), (10, "")]
)
def test_a_label_that_is_cut_keeps_whole_words_of_its_end(width: float, shown: str) -> None:
    name = "all-reduce #5 of the gradient of layer 12 (1,024 bytes)"
    assert pictures._fitting(name, width) == shown


def test_numbers_are_said_once_beside_the_picture(tmp_path: Path) -> None:
    text = "the gradient of layer 0 is wrong\n  [0, 0]: got 2, expected 1\n  (1 of 2 elements differ)\nSEED=7"
    values = {"name": "the gradient", "elements": "1 of 2 elements differ", "rows": [["[0, 0]", "1", "2"]]}
    assert "got 2, expected 1" in page_of(tmp_path, failed(failures=[text]))
    page = page_of(tmp_path, failed(failures=[text], picture=picture(values=values)))
    assert "got 2" not in page and page.count("1 of 2 elements differ") == 1 and "is wrong\nSEED=7</pre>" in page


def test_a_no_sync_scope_is_a_band(tmp_path: Path) -> None:
    scoped = picture()
    scoped["charts"][0]["lanes"][0]["scopes"] = [{"begin": 100, "end": 300}]
    assert page_of(tmp_path, failed(picture=scoped)).count('class="scope"') == 1


def test_memory_has_a_limit_and_what_is_over_it() -> None:
    series = [{"name": "parameters", "bytes": 90}, {"name": "gradients", "bytes": 120}]
    drawn = pictures.memory({"name": "rank 0", "limit": 100, "series": series})
    assert drawn.count('class="bytes"') == 1 and drawn.count('class="bytes over"') == 1


def test_without_jinja_the_run_says_that_there_is_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (stage,) = find_stages("02")
    page = tmp_path / "report.html"
    page.write_text("of an earlier run")
    monkeypatch.setattr(report_page, "VENV", tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    said = report_page.write(page, Report("assignments", "cpu", 7, [StageReport(stage, [failed()])]), {})
    assert "jinja2" in said and not page.exists()


def test_what_changed_since_the_last_complete_run(tmp_path: Path) -> None:
    (stage,) = find_stages("02")
    report = Report("assignments", "cpu", 7, [StageReport(stage, [failed()])])
    was = report_page.before(
        [{"extra_data": {"stage": stage.name, "test": "backward_never_waits", "status": "passed"}}]
    )
    report_page.write(tmp_path / "report.html", report, was)
    assert "failed, was passed" in (tmp_path / "report.html").read_text()
