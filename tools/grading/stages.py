"""The stages of the lab, and what STAGE=, TEST=, IMPL=, DEVICE= and SEED= may say."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.setup.toolchain import ROOT, LabError, how_to_restore

IMPLEMENTATIONS = ("assignments", "solutions")
DEVICES = ("cpu", "cuda")
MAX_SEED = 2**63 - 1
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TODO = re.compile(r'TORCH_CHECK_NOT_IMPLEMENTED\(\s*false,\s*"TODO\(student\)[^;]*;')


class BadChoice(LabError):
    """The user chose something that does not exist."""


@dataclass(frozen=True)
class Stage:
    """A stage is a folder assignments/<name> with a stage.json, and nothing else."""

    name: str
    number: str
    topic: str
    points: int
    extension: bool = False  # its points are a sum of their own, beside those of the others
    given: tuple[str, ...] = ()  # folders of common/ddp with a library of their own, which this stage may use

    @property
    def title(self) -> str:
        return f"{self.number} {self.topic}"

    def sources(self, impl: str) -> list[Path]:
        """The files that a student edits."""
        return sorted((ROOT / impl / self.name).glob("*.cpp"))

    def headers(self) -> list[Path]:
        """The contract."""
        return sorted((ROOT / "assignments" / self.name).glob("*.h"))

    def given_libraries(self, build_dir: Path) -> list[Path]:
        return [build_dir / "lib" / f"libddp_{name}.so" for name in self.given]

    def header_folders(self) -> list[Path]:
        """Whose headers it may include: the lab's public ones, what it is given, and its contract."""
        common = ROOT / "common" / "ddp"
        return [common, *(common / name for name in self.given), ROOT / "assignments" / self.name]

    def is_stub(self, impl: str) -> bool:
        """Whether nothing of it is written: it has no statement besides those that say so."""
        codes = [source.read_text(errors="replace") for source in self.sources(impl)]
        return bool(codes) and all(map(is_stub, codes))

    def has_tests(self) -> bool:
        return any((ROOT / "tests" / self.name).glob("*.cpp"))


def is_stub(code: str) -> bool:
    return ";" not in _TODO.sub("", _COMMENT.sub("", code))


def read_manifest(manifest: Path) -> Stage:
    try:
        fields = json.loads(manifest.read_text())
        stage = Stage(manifest.parent.name, fields["number"], fields["title"], int(fields["points"]),
                      bool(fields.get("extension", False)), tuple(fields.get("given", ())))  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"{short_paths(str(manifest))} cannot be read ({error}); "
            'it should look like {"number": "01", "title": "naive DDP", "points": 15}'
        ) from None
    if not stage.name.startswith(f"{stage.number}_"):
        raise LabError(f"{short_paths(str(manifest))}: the folder's name should begin with {stage.number}_")
    return stage


@functools.cache
def all_stages() -> tuple[Stage, ...]:
    """The course's stages, in the order of their folders' names."""
    stages = map(read_manifest, sorted((ROOT / "assignments").glob("*/stage.json")))
    extension = in_course("extension", True)
    return tuple(stage for stage in stages if extension or not stage.extension)


def in_course(name: str, otherwise: bool) -> bool:
    """What course.json says, which tools/student/course.py reads in full and complains of."""
    try:
        given = json.loads((ROOT / "course.json").read_text(encoding="utf-8")).get(name)
    except (OSError, ValueError, AttributeError):
        return otherwise
    return given if isinstance(given, bool) else otherwise


def named(name: str) -> Stage:
    """The stage of that folder."""
    for stage in all_stages():
        if stage.name == name:
            return stage
    raise LabError(f"There is no assignments/{name}/stage.json. Restore it: {how_to_restore('assignments')}")


def short_paths(text: str) -> str:
    """`text` with paths relative to the checkout."""
    return text.replace(f"{ROOT}/", "")


def closest_first(word: str, choices: Iterable[str]) -> list[str]:
    """The choices, those similar to `word` first."""
    choices = list(choices)
    alike = closest(word, choices)
    return alike + [choice for choice in choices if choice not in alike]


def closest(word: str, choices: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, dict.fromkeys(choices), n=5, cutoff=0.5)


def choose(option: str, value: str, choices: Iterable[str]) -> str:
    if value in choices:
        return value
    listed = ", ".join(closest_first(value, choices))
    raise BadChoice(f"{option}={value} is not one of: {listed}")


def choose_impl(value: str) -> str:
    """What IMPL= says; empty: the student's code."""
    if value == "solutions" and not (ROOT / value).is_dir():
        raise BadChoice("IMPL=solutions: the solutions are the instructor's. Without IMPL= it is your code that counts")
    return choose("IMPL", value or "assignments", IMPLEMENTATIONS)


def find_stages(text: str) -> list[Stage]:
    """The stage that `text` (01, 1 or 01_naive_ddp) names; all of them if it is empty."""
    if not text:
        return list(all_stages())
    for stage in all_stages():
        if text in (stage.name, stage.number, stage.number.lstrip("0"), stage.name.partition("_")[2]):
            return [stage]
    listed = ", ".join(closest_first(text, [stage.name for stage in all_stages()]))
    raise BadChoice(f"STAGE={text} is not one of: {listed} (the number alone will do: STAGE=01)")


def choose_seed(value: str) -> int:
    """What SEED= says; empty: one is drawn."""
    return parse_seed(value) if value else secrets.randbelow(10**9)


def parse_seed(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= MAX_SEED:
        return int(text)
    raise BadChoice(f"SEED={text} is not a whole number from 0 to {MAX_SEED}, as in SEED=42")


def match_tests(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that match `pattern` (a name, or a glob such as '*bitwise*'); all if it is empty."""
    names = list(names)
    pattern = pattern.strip().replace(" ", "_")
    if not pattern or pattern in names:
        return [pattern] if pattern else names
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def no_such_test(pattern: str, names: Iterable[str]) -> BadChoice:
    names = list(names)
    if not names:
        return BadChoice(f"TEST={pattern}: there are no graded tests here yet")
    listed = "\n  ".join(closest(pattern.replace(" ", "_"), names) or dict.fromkeys(names))
    return BadChoice(
        f"TEST={pattern} is not the name of a test, nor a pattern that fits one. There are:\n  {listed}\n"
        "make hint lists all tests, with what each looks for"
    )


def make_command(target: str, stage: Stage | None, impl: str = "assignments", **others: object) -> str:
    """What to type, such as `make test STAGE=01 TEST=name SEED=7`; empty and default values are left out."""
    words = ["make", target] + ([f"STAGE={stage.number}"] if stage else [])
    words += [f"{name.upper()}={value}" for name, value in others.items() if value not in ("", None, "cpu")]
    if impl != "assignments":
        words.append(f"IMPL={impl}")
    return " ".join(words)
