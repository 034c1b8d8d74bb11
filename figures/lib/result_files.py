"""Reads the result files that benchmarks write (figures/lib/schema.json describes them)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
# The facts in the corner of each figure.
PROVENANCE = ("cpu", "cores", "gpu", "torch", "backend", "device", "implementation", "preset", "world_size", "seed",
              "commit", "date")  # fmt: skip


class ResultError(Exception):
    """A result file that cannot be used: which one, why, and what to do."""


@dataclass(frozen=True)
class Result:
    """One result file. `values` maps the labels of a series to its values."""

    file: Path
    provenance: dict[str, Any]
    parameters: dict[str, Any]
    series: list[dict[str, Any]]

    @property
    def simulated(self) -> bool:
        """Whether it is of the simulated cluster, where one rank stands for all, and one value for each time."""
        return self.provenance["device"] == "simulated"

    @property
    def link(self) -> str:
        """The link that it was measured on, in words."""
        rate, latency = self.parameters["rate_gbit"], self.parameters["latency_us"]
        limits = [f"{rate:g} Gbit/s"] if rate else []
        limits += [f"{latency:g} µs a message"] if latency else []
        return f"a link limited to {' and '.join(limits)}" if limits else "the machine's own link"

    def error(self, problem: str) -> ResultError:
        return _error(self.file, problem)

    def first_values(self, unit: str, *names: str, **wanted: Any) -> dict[Any, Any]:
        """The first value of each series that has the labels `wanted`, by these labels, one in the other."""
        found: dict[Any, Any] = {}
        for labels in (series["labels"] for series in self.series):
            if wanted.items() <= labels.items():
                inner = found
                for name in names[:-1]:
                    inner = inner.setdefault(labels[name], {})
                inner[labels[names[-1]]] = self.values(unit, **labels)[0]
        return found

    def values(self, unit: str, **labels: Any) -> list[float]:
        """The values of the one series with exactly these labels, measured in `unit`."""
        matching = [series for series in self.series if series["labels"] == labels]
        name = ", ".join(f"{key} {value}" for key, value in labels.items())
        if len(matching) != 1:
            raise self.error(f"has {len(matching)} series of {name}, not one")
        if matching[0]["unit"] != unit:
            raise self.error(f"gives {name} in {matching[0]['unit']!r}, not in {unit!r}")
        values = matching[0]["values"]
        if not values:
            raise self.error(f"has no values of {name}")
        if not all(isinstance(value, (int, float)) for value in values):
            raise self.error(f"has a value of {name} that is not a number")
        return values


def left_out(wanted: Iterable[str], there: Container[str]) -> str:
    """A sentence for a caption about what is missing."""
    missing = [name for name in wanted if name not in there]
    return f" Left out: unfinished: {', '.join(missing)}." if missing else ""


def write_whole(file: Path, write: Callable[[Path], object]) -> Path:
    """Writes a file by `write`, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        write(temporary)
        return temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def load(file: Path, program: str, parameters: tuple[str, ...] = ()) -> Result:
    """The result in `file`, which must come from `program` and have these parameters."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultError(f"{file}: there is no such file; run the benchmark {program} first") from None
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # JSON and UTF-8 errors
        raise _error(file, f"is not JSON ({error})") from None
    _check(file, document, program)
    for name in parameters:
        if name not in document["parameters"]:
            raise _error(file, f"lacks the parameter {name!r}")
    provenance = {"program": program, **document["provenance"]}
    return Result(file, provenance, document["parameters"], document["series"])


def load_group(files: list[Path], program: str, shared: tuple[str, ...], own: tuple[str, ...]) -> list[Result]:
    """Several results for one figure: of one implementation, preset and number of ranks, and equal in the `shared`
    parameters; each also has the `own` parameters."""
    results = [load(file, program, shared + own) for file in files]
    for field in ("implementation", "preset", "world_size"):
        _check_equal(field, [result.provenance[field] for result in results])
    for name in shared:
        _check_equal(name, [result.parameters[name] for result in results])
    return results


def _check_equal(what: str, values: list[Any]) -> None:
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise ResultError(f"the files mix {what}: {', '.join(map(str, different))}; give files that agree in it")


def _check(file: Path, document: Any, program: str) -> None:
    """Checks what every figure relies on. The schema says more."""
    if not isinstance(document, dict) or "schema_version" not in document:
        raise _error(file, "is not a result of a benchmark")
    if document["schema_version"] != SCHEMA_VERSION:
        raise _error(file, f"has schema version {document['schema_version']}, not {SCHEMA_VERSION}")
    if document.get("program") != program:
        raise _error(file, f"comes from the program {document.get('program')!r}, not {program!r}")
    for field, kind in (("provenance", dict), ("parameters", dict), ("series", list)):
        if not isinstance(document.get(field), kind):
            raise _error(file, f"lacks {field!r}")
    if not document["series"]:
        raise _error(file, "is empty: it has no series")
    for series in document["series"]:
        if not isinstance(series, dict) or not {"labels", "unit", "values"} <= series.keys():
            raise _error(file, "has a series without labels, unit or values")
    missing = [field for field in PROVENANCE if field not in document["provenance"]]
    if missing:
        raise _error(file, f"lacks provenance: {', '.join(missing)}")


def _error(file: Path, problem: str) -> ResultError:
    return ResultError(f"{file}: {problem}; delete it and run the benchmark again")


def provenance_in_words(results: list[Result]) -> str:
    """The line under a figure or table; its results must be of one implementation and preset."""
    for field in ("implementation", "preset"):
        _check_equal(field, [result.provenance[field] for result in results])

    def each(say: Callable[[dict[str, Any]], str]) -> str:
        """What `say` returns for each result, but once if it is the same for all."""
        return " and ".join(dict.fromkeys(say(result.provenance) for result in results))

    dates = sorted({result.provenance["date"][:10] for result in results})
    parts = [
        each(lambda of: f"{of['gpu'] if of['device'] == 'cuda' else of['cpu']}, {of['cores']} cores"),
        each(lambda of: f"torch {of['torch']}, {of['backend']}"),
        each(lambda of: f"{of['implementation']}, {of['preset']} preset"),
        "seed " + each(lambda of: str(of["seed"])),
        "commit " + each(lambda of: _short(of["commit"])),
        " to ".join(dict.fromkeys((dates[0], dates[-1]))),
    ]
    return " · ".join(parts)


def _short(commit: str) -> str:
    """Eight digits, and whether files had been changed since."""
    digits, dash, dirty = commit.partition("-")
    return digits[:8] + dash + dirty
