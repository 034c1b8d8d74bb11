"""Says on the page of a CI's job what results.json holds: a line for each stage, and what did not pass.

Where GitHub runs it, the page is the file that GITHUB_STEP_SUMMARY names; elsewhere it is printed. It uses no template,
since the system's Python runs it, with the standard library alone. Exit code: 0 if there are results, whatever they
are; 3 if not.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import sys
from pathlib import Path, PurePath
from typing import Any

from tools.grading import released
from tools.grading.released import is_students
from tools.grading.stages import all_stages
from tools.grading.terminal import ending_of
from tools.setup.toolchain import LabError

LONGEST = 2000  # characters of what a test says; a page may have a megabyte
SHOWN = 10
JUDGES = {"CMakeLists.txt", "Makefile", "cmake", "common", "requirements.txt", "tests", "tools"}
WHY = {"todo": "not written yet", "not_run": "did not come to its turn", "not_judged": "not judged"}

Test = dict[str, Any]


def write() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tools.grading.sandbox.job_page", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("results", type=Path, help="results.json of make test or of grade_submission")
    text = page(load(parser.parse_args().results), edited_judges())
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as there:
            there.write(text)
    else:
        print(text)
    return 0


def edited_judges() -> list[str]:
    """What is not as it was handed out, and could change a verdict. The course's own copy was not handed out."""
    edited = released.edited() if released.load() else None
    return [name for name in edited or () if _judges(PurePath(name))]


def _judges(path: PurePath) -> bool:
    in_stage = path.parts[0] == "assignments" and path.suffix in (".h", ".json") and not is_students(str(path))
    return path.parts[0] in JUDGES or in_stage


def load(results: Path) -> list[Test]:
    try:
        tests = json.loads(results.read_text(encoding="utf-8"))["tests"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"{results}: there are no results that can be read ({error}); see what was printed before"
        ) from None
    if not tests:
        raise LabError(f"{results}: nothing was graded; see what was printed before")
    return tests


def page(tests: list[Test], edited: list[str]) -> str:
    """In GitHub's Markdown."""
    lines = ["| Stage | Points | Tests passed |", "|---|---:|---:|"]
    for stage in all_stages():
        if own := [test for test in tests if test["extra_data"]["stage"] == stage.name]:
            lines.append(_row(stage.title, own))
    lab, beyond = ([test for test in tests if _is_beyond(test) is extension] for extension in (False, True))
    lines += [_row("**all**", lab)] * bool(lab) + [_row("**extension**", beyond)] * bool(beyond)
    lines += ["", *_whose(edited), ""]
    lines += [_details(test) for test in tests if _is_seen(test) and test["status"] != "passed"]
    return "\n".join(lines) + "\n"


def _row(title: str, tests: list[Test]) -> str:
    score, most = (sum(test[field] for test in tests) for field in ("score", "max_score"))
    passed = sum(test["status"] == "passed" for test in tests)
    return f"| {title} | {score:g} / {most:g} | {passed} of {len(tests)} |"


def _whose(edited: list[str]) -> list[str]:
    if not released.load():
        return ["Graded by the course's own copy of the lab."]
    if not edited:
        return ["Graded by this repository's own copy of the lab."]
    more = [f"- and {len(edited) - SHOWN} more"] if len(edited) > SHOWN else []
    return ["**These points do not count**: this repository's copy of the lab is not as it was handed out. "
            "Bring these files back; your code goes into the stages' `.cpp` files.",
            "", *(f"- `{name}`" for name in edited[:SHOWN]), *more]  # fmt: skip


def _is_beyond(test: Test) -> bool:
    """Its points are no part of the lab's sum."""
    return test["extra_data"].get("extension", False)


def _is_seen(test: Test) -> bool:
    return test.get("visibility", "visible") == "visible"


def _why(test: Test) -> str:
    status = test["extra_data"]["status"]
    return WHY.get(status, status)


def _details(test: Test) -> str:
    said = html.escape(test["output"][:LONGEST].strip())
    summary = ": ".join([html.escape(test["name"]), _why(test), *said.splitlines()[:1]])
    lines = said.replace("\n", "&#10;")  # what follows an empty line would be Markdown
    return f"<details><summary>{summary}</summary>\n<pre>{lines}</pre></details>\n"


if __name__ == "__main__":
    sys.exit(ending_of("job_page", write))
