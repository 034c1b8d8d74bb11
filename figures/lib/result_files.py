"""Reads the result files that benchmarks write (figures/lib/schema.json describes them)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
# The facts in the corner of each figure.
PROVENANCE = (
    "cpu",
    "cores",
    "gpu",
    "torch",
    "backend",
    "device",
    "implementation",
    "preset",
    "world_size",
    "seed",
    "commit",
    "date",
)


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

    def values(self, unit: str, **labels: Any) -> list[float]:
        """The values of the one series with exactly these labels, measured in `unit`."""
        matching = [series for series in self.series if series["labels"] == labels]
        name = ", ".join(f"{key} {value}" for key, value in labels.items())
        if len(matching) != 1:
            raise _error(self.file, f"has {len(matching)} series of {name}, not one")
        if matching[0]["unit"] != unit:
            raise _error(self.file, f"gives {name} in {matching[0]['unit']!r}, not in {unit!r}")
        values = matching[0]["values"]
        if not values:
            raise _error(self.file, f"has no values of {name}")
        if not all(isinstance(value, (int, float)) for value in values):
            raise _error(self.file, f"has a value of {name} that is not a number")
        return values


def load(file: Path, program: str) -> Result:
    """The result in `file`, which must come from `program`."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultError(f"{file}: there is no such file; run the benchmark {program} first") from None
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # JSON and UTF-8 errors
        raise _error(file, f"is not JSON ({error})") from None
    _check(file, document, program)
    provenance = {"program": program, **document["provenance"]}
    return Result(file, provenance, document["parameters"], document["series"])


def load_group(files: list[Path], program: str, *, shared: tuple[str, ...], own: tuple[str, ...]) -> list[Result]:
    """Several results for one figure: of one implementation, preset and number of ranks, and equal in the `shared`
    parameters; each also has the `own` parameters."""
    if not files:
        raise ResultError(f"no result file given; run the benchmark {program} first")
    results = [load(file, program) for file in files]
    for field in ("implementation", "preset", "world_size"):
        _check_equal(field, [result.provenance[field] for result in results])
    for result in results:
        for name in shared + own:
            if name not in result.parameters:
                raise _error(result.file, f"lacks the parameter {name!r}")
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
