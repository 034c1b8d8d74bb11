"""The stages of the lab, and what STAGE=, TEST=, IMPL=, DEVICE= and SEED= may say."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toolchain import ROOT, LabError

IMPLEMENTATIONS = ("assignments", "solutions")
DEVICES = ("cpu", "cuda")
MAX_SEED = 2**63 - 1


class BadChoice(LabError):
    """Something was asked for that is not there."""


@dataclass(frozen=True)
class Stage:
    name: str
    points: int

    @property
    def number(self) -> str:
        return self.name[:2]

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    def sources(self, impl: str) -> list[Path]:
        """What a student edits."""
        return sorted((ROOT / impl / self.name).glob("*.cpp"))

    def has_tests(self) -> bool:
        return any((ROOT / "tests" / self.name).glob("*.cpp"))


STAGES = (
    Stage("01_naive_ddp", 15),
    Stage("02_overlapped_ddp", 20),
    Stage("03_bucketed_ddp", 25),
    Stage("04_sync_batch_norm", 20),
    Stage("05_ring_all_reduce", 20),
)


def short_paths(text: str) -> str:
    """`text` with paths as seen from the checkout."""
    return text.replace(f"{ROOT}/", "")


def closest_first(word: str, choices: Iterable[str]) -> list[str]:
    """The choices, those that look like `word` before the others."""
    choices = list(choices)
    alike = difflib.get_close_matches(word, choices, n=5, cutoff=0.5)
    return alike + [choice for choice in choices if choice not in alike]


def choose(option: str, value: str, choices: Iterable[str]) -> str:
    if value in choices:
        return value
    listed = ", ".join(closest_first(value, choices))
    raise BadChoice(f"{option}={value} is not one of: {listed}")


def find_stages(text: str) -> list[Stage]:
    """The stage that `text` (01, 1 or 01_naive_ddp) names; all of them if it is empty."""
    if not text:
        return list(STAGES)
    for stage in STAGES:
        if text in (stage.name, stage.number, stage.number.lstrip("0"), stage.name[3:]):
            return [stage]
    listed = ", ".join(closest_first(text, [stage.name for stage in STAGES]))
    raise BadChoice(f"STAGE={text} is not one of: {listed} (the number alone will do: STAGE=01)")


def parse_seed(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= MAX_SEED:
        return int(text)
    raise BadChoice(f"SEED={text} is not a whole number from 0 to {MAX_SEED}, as in SEED=42")


def match_tests(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that `pattern` (a name, or a glob such as '*bitwise*') stands for; all if it is empty."""
    names = list(names)
    pattern = pattern.strip().replace(" ", "_")
    if not pattern or pattern in names:
        return [pattern] if pattern else names
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def no_such_test(pattern: str, names: Iterable[str]) -> BadChoice:
    names = list(names)
    if not names:
        return BadChoice(f"TEST={pattern}: there are no graded tests here yet")
    listed = "\n  ".join(closest_first(pattern, names))
    return BadChoice(f"TEST={pattern} is not the name of a test, nor a pattern that fits one:\n  {listed}")


def make_command(target: str, stage: Stage | None, impl: str = "assignments", **others: object) -> str:
    """What to type, such as `make test STAGE=01 TEST=name SEED=7`; empty and default values are left out."""
    words = ["make", target] + ([f"STAGE={stage.number}"] if stage else [])
    words += [f"{name.upper()}={value}" for name, value in others.items() if value not in ("", None, "cpu")]
    if impl != "assignments":
        words.append(f"IMPL={impl}")
    return " ".join(words)
