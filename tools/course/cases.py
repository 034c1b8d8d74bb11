"""make cases: build/cases.html, failures to read before one has any; make cases EXAM=12: others, on paper.

A case is what a mutant does, without its code, nor the marks of its picture. Which test fails, and what is the mistake?
tests/mutants/<stage>.cases has a stage's, from easy to hard. What was recorded is kept until something of it changes.

    ## name                       the mutant's
    Scenario: what the ranks do
    Tests: name, name, name       wrong answers: tests that it passes; the first that kills it is right
    Mistakes: name, name, name    wrong answers: what other mutants do
    Breaks: a sentence            of the header or the handout, word for word
"""

from __future__ import annotations

import argparse
import base64
import functools
import hashlib
import itertools
import json
import random
import re
import sys
import zlib
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.checking import in_place, mutants
from tools.checking.context import CORES, Context
from tools.checking.mutants import Mutant
from tools.grading import stages
from tools.grading.page import pictures, report_page
from tools.grading.running import test_lists
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import replace_file
from tools.grading.stages import BadChoice, Stage
from tools.grading.terminal import ending_of
from tools.setup import toolchain
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError
from tools.student.cases import PACKED, show

FIELDS = ("Scenario", "Tests", "Mistakes", "Breaks")
WRONG, SEED = 3, 1  # wrong answers to each question; of all runs that are recorded
TEMPLATE = Path(__file__).parent / "templates" / "cases.html"
Record = dict[str, Any]  # "passed": tests; "message" and "picture" of the first test that kills the mutant
Shown = dict[str, Any]  # a case as the page has it


@dataclass(frozen=True)
class Case:
    mutant: Mutant
    scenario: str
    tests: list[str]  # wrong answers
    mistakes: list[str]  # of mutants with these names
    breaks: str = ""


def listed(stage: Stage) -> list[Case]:
    known, cases = {each.name: each for each in mutants.load(stage)}, []
    for name, text in in_place.entries(Mutant.kind, stage, "cases").items():
        fields = in_place.fields_of(text, FIELDS)
        in_place.require(fields, FIELDS)
        tests, mistakes = (fields[key].split(", ") for key in ("Tests", "Mistakes"))
        mutant = known[stages.choose("mutant", name, known)]
        cases.append(Case(mutant, fields["Scenario"], tests, mistakes, fields["Breaks"]))
    return cases


def recorded(chosen: list[Mutant]) -> list[Record]:
    """What each of them does. Only what is not known is run."""
    if missing := [mutant for mutant in chosen if not place_of(mutant).exists()]:
        print(f"Recording {len(missing)} failures (a minute for each stage) ...", flush=True)
        context, involved = Context(toolchain.load(), SEED), dict.fromkeys(mutant.stage for mutant in missing)
        targets = [f"{what}_{stage.name}" for stage in involved for what in ("tests", "solutions")]
        with hold(context.build_dir / "grade" / "lock", "make cases"), ProcessPoolExecutor(CORES) as pool:
            if failure := context.build(targets):
                raise LabError(failure)
            for stage in involved:
                context.provide_activity(stage)
            list(pool.map(functools.partial(_record, context), missing))
    return [json.loads(place_of(mutant).read_bytes()) for mutant in chosen]


def _record(context: Context, mutant: Mutant) -> None:
    report, _ = mutant.grade(context, context.tests_of(mutant.stage), RunOptions(context.seed, brief=True))
    passed = [result.spec.name for result in report.results if result.status == "passed"]
    first = next(result for result in report.results if result.spec.name == mutant.killed_by[0])
    record = {"passed": passed, "message": "\n\n".join(first.failures), "picture": first.picture}
    place_of(mutant).parent.mkdir(parents=True, exist_ok=True)
    replace_file(place_of(mutant), json.dumps(record).encode())


def place_of(mutant: Mutant) -> Path:
    """Where its record is; another place as soon as something that it depends on is another."""
    key = hashlib.sha256(_code(mutant.stage) + mutant.text.encode()).hexdigest()[:16]
    return BUILD_DIR / "cases" / mutant.stage.name / f"{mutant.name}.{key}.json"


@functools.cache
def _code(stage: Stage) -> bytes:
    """Of the tests, the solution, and the library below both."""
    folders = (f"tests/{stage.name}", "tests/grader", f"solutions/{stage.name}", "common/ddp")
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*")) if file.suffix in (".h", ".cpp")]
    return b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)


def all_of(chosen: Iterable[Stage]) -> dict[Stage, list[Shown]]:
    cases = {stage: listed(stage) for stage in chosen}
    records = iter(recorded([case.mutant for each in cases.values() for case in each]))
    return {stage: [shown(case, next(records)) for case in each] for stage, each in cases.items()}


def shown(case: Case, record: Record) -> Shown:
    mutant, draw = case.mutant, random.Random(case.mutant.name)
    titles = {spec.name: spec.title for spec in test_lists.tests_of(mutant.stage)}
    others = {each.name: each.mistake for each in mutants.load(mutant.stage)}
    if mutant.killed_by[0] in record["passed"] or not {*case.tests} <= {*record["passed"]}:
        raise LabError(f"{mutant.title}: its case says what it fails and passes, but it passes {record['passed']}")

    def question(asked: str, right: str, wrong: Iterable[str]) -> tuple[str, list[str], int]:
        answers = draw.sample([right, *wrong], WRONG + 1)
        sentences = [re.sub(r"^\w(?!\S*\()", lambda first: first[0].upper(), answer) for answer in answers]
        return asked, sentences, answers.index(right)

    plain = without(record["picture"], "line", "marks", "marked", "bar")
    for moment in (plain["memory"] or {}).get("series", ()):
        moment["limit"] = moment["bytes"]  # drawn as what is within it
    return {
        **vars(case),
        "id": hashlib.sha256(mutant.title.encode()).hexdigest()[:8],  # says nothing of the mistake
        "picture": report_page.picture_of(plain),
        "words": list(in_words(plain)),
        "questions": [
            question("Which test fails?", titles[mutant.killed_by[0]], (titles[name] for name in case.tests)),
            question("What is the mistake?", mutant.mistake, (others[name] for name in case.mistakes)),
        ],
        "marked": report_page.picture_of(without(record["picture"], "line")),
        "message": re.sub(r"\n +at .*", "", record["message"]),  # without functions of the solution
    }


def without(picture: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A copy without what tells too much, such as "line": where the mutant's code launches an operation."""
    return json.loads(json.dumps(picture), object_hook=lambda each: {k: v for k, v in each.items() if k not in keys})


def in_words(picture: dict[str, Any]) -> Iterable[tuple[str, list[str]]]:
    """What happens in each lane, for those who do not see it; once for ranks that do the same."""
    for chart in picture["charts"]:
        lanes: dict[str, list[str]] = {}
        for lane in chart["lanes"]:
            spans = [*lane["parts"], *lane["computing"], *lane["operations"]]
            spans.sort(key=lambda span: int(span.get("launched", span["begin"])))
            said = "\n".join(pictures.about(span).replace("\n", ", ") for span in spans)
            lanes.setdefault(said, []).append(lane["name"])
        yield from ((", ".join(names), said.split("\n")) for said, names in lanes.items())
        if arrows := chart.get("arrows"):
            yield "between ranks", [f"rank {each['from']} to rank {each['to']}: {each['text']}" for each in arrows]
    if memory := picture["memory"]:
        bytes_ = [f"{moment['name']}: {moment['bytes']:,} bytes" for moment in memory["series"]]
        yield f"{memory['name']}, of at most {memory['limit']:,} bytes", bytes_


def page(title: str, cases: dict[Stage, list[Shown]], form: str) -> bytes:
    """`form`: asked, where answers are checked; exam, on paper; or key, with the answers."""
    text = report_page.render(TEMPLATE, title=title, stages=cases, form=form, packed=packed)
    return stages.short_paths(text).encode()


def packed(html: str) -> str:
    """What the page shows when it is asked, and what a glance at its source does not tell."""
    return base64.b64encode(zlib.compress(html.encode(), 9)).decode()


def exam(chosen: Iterable[Stage], count: int, seed: int) -> dict[Stage, list[Shown]]:
    """Of so many mutants that are not listed, drawn from these stages in turns."""
    draw, cases, decks = random.Random(seed), {stage: [] for stage in chosen}, []
    for stage in cases:
        known = {case.mutant.name for case in listed(stage)}
        others = [each for each in mutants.seen_by_tests(stage) if each.name not in known]
        decks.append(draw.sample(others, len(others)))
    waiting = [mutant for turn in itertools.zip_longest(*decks) for mutant in turn if mutant]
    while waiting and (missing := count - sum(map(len, cases.values()))):
        batch, waiting = waiting[:missing], waiting[missing:]
        for mutant, record in zip(batch, recorded(batch)):
            cases[mutant.stage] += [shown(case, record) for case in _made_up(mutant, record, draw)]
    return cases


def _made_up(mutant: Mutant, record: Record, draw: random.Random) -> list[Case]:
    """None where the picture does not show what happened, or too little else passes."""
    passed, tests = record["passed"], {*mutant.killed_by}
    others = [each.name for each in mutants.seen_by_tests(mutant.stage) if tests.isdisjoint(each.killed_by)]
    kinds = {mark["kind"] for chart in record["picture"]["charts"] for mark in chart.get("marks", ())}
    if not kinds or "exception" in kinds or mutant.killed_by[0] in passed or min(len(passed), len(others)) < WRONG:
        return []
    wrong = (draw.sample(known, WRONG) for known in (passed, others))
    return [Case(mutant, f"The run '{record['picture']['title']}'.", *wrong)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cases", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 07: where the page opens, or what is examined")
    parser.add_argument("--exam", default="", help="how many cases an exam has")
    parser.add_argument("--seed", default="", help="draws the cases of an exam again")
    parser.add_argument("--into", type=Path, default=ROOT, help="the tree of a release, which gets the page")
    options = parser.parse_args()
    asked = stages.find_stages(options.stage)
    if options.exam:
        return write_exam(asked, options.exam, stages.choose_seed(options.seed))
    chosen = [stage for stage in stages.all_stages() if (options.into / "tests" / stage.name).is_dir()]
    file = BUILD_DIR / "cases.html" if options.into == ROOT else options.into / PACKED
    replace_file(file, page("Failures to read", all_of(chosen), "asked"))
    return show(file, options.stage) if options.into == ROOT else 0


def write_exam(chosen: list[Stage], count: str, seed: int) -> int:
    if not count.isdecimal() or not int(count):
        raise BadChoice(f"EXAM={count} should be a number of cases: make cases EXAM=12")
    cases = exam(chosen, int(count), seed)
    for form, name in (("exam", "exam.html"), ("key", "exam_key.html")):
        replace_file(BUILD_DIR / name, page("Exam: failures of wrong solutions", cases, form))
        print(BUILD_DIR / name)
    print(f"{sum(map(len, cases.values()))} cases; the same again: make cases EXAM={count} SEED={seed}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("make cases", main))
