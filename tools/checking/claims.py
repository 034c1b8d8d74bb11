"""The tables tests/CLAIMS.md and tests/mutants/README.md, and what bodies do, written by this program and compared in
`make check`.

    python3 -m tools.checking.claims     writes all anew, after `make setup`

tests/CLAIMS.md goes through the headers that students implement, sentence by sentence, and says which tests hold each.
That is in tests/<folder>/contract.json, by header, and by the beginning of the sentence: either a list of tests (of
another stage with its number, such as "03 plan_follows_the_rules"), or in a few words why there is none.

tests/<stage>/signs_of_life.json says how much each rank of each body does at least, from a run of the solutions: who
did less has not run the body, whatever it says (tests/support/signs_of_life.h).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tools.checking import mutants
from tools.checking.context import Context, Outcome, graded_stages
from tools.checking.variants import variants_of
from tools.grading.running.runner import RunOptions, signs_of_life
from tools.grading.scoring.results import StageReport, replace_file
from tools.grading.stages import Stage
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

CLAIMS, MUTANTS = ROOT / "tests" / "CLAIMS.md", ROOT / "tests" / "mutants" / "README.md"
COMMAND = "python3 -m tools.checking.claims"
_SHORTEST = 3  # words; "Lifetime." is a heading
Holders = list[str] | str  # of a sentence: tests, or in a few words why there is none
_CLAIMS_HEAD = f"""\
# What the headers say, and which tests hold it

Written by `{COMMAND}` from the headers, `contract.json` in the folders of the tests, the mutants, and a
run of the solutions; `make check` compares."""
_MUTANTS_HEAD = f"""\
# Wrong solutions, and what finds them

Written by `{COMMAND}` from the lines above their edits, which `make check` holds true.
The first test named says what matches the last column; in **bold**, the only test that fails. A mistake about one
property costs the points of one test, and so does one about something rare; *loses* are the points, and why no
fewer where they are more."""


def sentences(header: str) -> list[str]:
    """What the comments of a header say, without its headings, drawings and examples."""
    paragraphs: list[list[str]] = [[]]
    for line in header.splitlines():
        comment = re.match(r"\s*//[/]? ?(.*)", line)
        text = comment[1] if comment else ""
        if not text.strip() or text.startswith(("    ", "- ")):
            paragraphs.append([])
        if not text.startswith("    "):
            paragraphs[-1].append(text.removeprefix("- ").strip())
    joined = (" ".join(lines) for lines in paragraphs)
    found = [each.strip() for text in joined for each in re.split(r"(?<=[.!?]) +(?=[A-Z`(])", text)]
    return [each for each in found if len(each.split()) >= _SHORTEST]


def contract_of(folder: str) -> dict[str, dict[str, Holders]]:
    path = ROOT / "tests" / folder / "contract.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise LabError(f"tests/{folder}/contract.json is not JSON: {error}") from None


def match(header: str, said: list[str], entries: dict[str, Holders]) -> tuple[list[tuple[str, Holders]], list[str]]:
    """Each sentence with its holders, and what does not fit."""
    held, problems = [], []
    for sentence in said:
        fitting = [holders for beginning, holders in entries.items() if sentence.startswith(beginning)]
        if len(fitting) != 1:
            number = len(fitting) or "no"
            problems.append(f'{header}: {number} entries of contract.json begin the sentence "{sentence}"')
        elif not fitting[0]:
            problems.append(f'{header}: nothing holds the sentence "{sentence}"')
        else:
            held.append((sentence, fitting[0]))
    for beginning in entries:
        if not any(sentence.startswith(beginning) for sentence in said):
            problems.append(f'{header}: no sentence begins with "{beginning}", as contract.json says')
    return held, problems


def qualified(test: str, folder: str) -> str:
    """ "03 name" for a test of stage 03."""
    return test if " " in test else f"{folder[:2]} {test}"


class Tables:
    """All files, and what is wrong with what they are made from."""

    def __init__(self, context: Context) -> None:
        self.problems: list[str] = []
        self._stages = graded_stages()
        outcome = Outcome()
        self._mutants = {stage: mutants.load(stage, outcome) for stage in self._stages}
        self._tests = {stage: mutants.graded_tests(context, stage) for stage in self._stages}
        self._bodies = {stage: bodies_of(context, stage) for stage in self._stages}
        self.problems += outcome.failures
        for stage in self._stages:
            for name in mutants.not_needed(self._tests[stage], self._mutants[stage]):
                self.problems.append(f"no mutant in tests/mutants/{stage.name}.diff is killed by {name} only")
            if len(variants_of(stage)) < 2:
                self.problems.append(f"tests/variants/{stage.name} needs at least two correct, unusual solutions")
        self.files = {CLAIMS: self._claims(), MUTANTS: self._mutant_table()}
        self.files |= {signs_of_life(stage): by_line(self._bodies[stage]["signs"]) for stage in self._stages}

    def _claims(self) -> str:
        lines = [_CLAIMS_HEAD]
        known = {f"{stage.number} {spec.name}" for stage in self._stages for spec in self._tests[stage]}
        used: set[str] = set()
        for folder in ["support", *(stage.name for stage in self._stages)]:
            for header, entries in contract_of(folder).items():
                held, problems = match(header, sentences((ROOT / header).read_text(encoding="utf-8")), entries)
                self.problems += problems
                lines += ["", f"## {header}", "", "| sentence | held by |", "|---|---|"]
                for sentence, holders in held:
                    tests = [] if isinstance(holders, str) else [qualified(test, folder) for test in holders]
                    used.update(tests)
                    lines.append(f"| {cell(sentence)} | {', '.join(tests) or f'*{cell(holders)}*'} |")
        for stage in self._stages:
            if not contract_of(stage.name):
                self.problems.append(f"tests/{stage.name}/contract.json is missing: see {Path(__file__).name}")
            lines += self._tests_of(stage)
        self.problems += [f"contract.json names {test}, which is no test with points" for test in sorted(used - known)]
        self.problems += [f"no sentence of a header is held by {test}" for test in sorted(known - used)]
        return "\n".join(lines) + "\n"

    def _tests_of(self, stage: Stage) -> list[str]:
        lines = ["", f"## Tests of stage {stage.number}", "", "| test | judged on | it alone kills |", "|---|---|---|"]
        for spec in self._tests[stage]:
            own = [mutant.name for mutant in self._mutants[stage] if mutant.exclusive == spec.name]
            bodies = self._bodies[stage]["of_test"].get(spec.name, [])
            on = f"{len(bodies)} {'body' if len(bodies) == 1 else 'bodies'}: {bodies[0]}" if bodies else "no ranks"
            lines.append(f"| {spec.name} | {cell(on)}{', ...' if len(bodies) > 1 else ''} | {', '.join(own)} |")
        return lines

    def _mutant_table(self) -> str:
        lines = [_MUTANTS_HEAD]
        for stage in self._stages:
            lines += ["", f"## {stage.title}", ""]
            lines += ["| mutant | mistake | loses | killed by | says |", "|---|---|---|---|---|"]
            for mutant in self._mutants[stage]:
                tests = f"**{mutant.exclusive}**" if mutant.exclusive else ", ".join(mutant.killed_by)
                tests = tests or f"AddressSanitizer: {mutant.sanitizer}"
                says = f"`{cell(mutant.says.pattern)}`" if mutant.says.pattern else ""
                cells = (mutant.name, cell(mutant.mistake), self._price(stage, mutant), tests, says)
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _price(self, stage: Stage, mutant: mutants.Mutant) -> str:
        if problem := mutants.unexplained(mutant, self._tests[stage]):
            self.problems.append(f"{mutant.title}: {problem}")
        lost = mutants.price(mutant, self._tests[stage])
        return "" if lost is None else f"{lost:g}" + (f": {cell(mutant.because)}" if mutant.because else "")


def by_line(table: dict[str, list[int]]) -> str:
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items()) + "\n}\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def bodies_file(context: Context, stage: Stage) -> Path:
    return context.folder("told") / f"{stage.name}.json"


def keep_bodies(context: Context, report: StageReport) -> None:
    """Called with each run of a solution: on which bodies its tests were judged."""
    bodies = {result.spec.name: result.bodies for result in report.results}
    bodies_file(context, report.stage).write_text(json.dumps({"of_test": bodies, "signs": report.signs}))


def bodies_of(context: Context, stage: Stage) -> dict[str, dict[str, list]]:
    file = bodies_file(context, stage)
    if not file.exists():
        library = context.builder.library(stage, "solutions")
        options = RunOptions(context.seed, alive=False)  # what it does is about to be written down
        keep_bodies(context, context.grade(stage, library, context.tests_of(stage), options))
    return json.loads(file.read_text())


def check_claims(context: Context) -> Outcome:
    tables, outcome = Tables(context), Outcome()
    for problem in tables.problems:
        outcome.add(problem)
    for path, text in tables.files.items():
        same = path.exists() and path.read_text(encoding="utf-8") == text
        outcome.add("" if same else f"{path.relative_to(ROOT)} is out of date; write it anew: {COMMAND}")
    return outcome


def main() -> int:
    try:
        context = Context(toolchain.load(), 0)
        for stage in graded_stages():
            bodies_file(context, stage).unlink(missing_ok=True)  # the bodies may have changed since
        tables = Tables(context)
    except LabError as error:
        print(error, file=sys.stderr)
        return 3
    for path, text in tables.files.items():
        replace_file(path, text.encode())
    for problem in tables.problems:
        print(problem, file=sys.stderr)
    return 1 if tables.problems else 0


if __name__ == "__main__":
    sys.exit(main())
