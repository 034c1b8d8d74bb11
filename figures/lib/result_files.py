"""Reads result files, each as one long table, and the published numbers beside which they are shown.

A result's table has a row for each value: the labels of its series, `unit`, `value`, and `call`, its number within the
series. Its `attrs` are the result's `program`, `parameters` and `provenance`; schema.json describes the file.
Published numbers are in figures/reference/<name>.csv, below comments ("# ...") that say where they come from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd

FOLDER = Path(__file__).resolve().parents[1] / "reference"
SCHEMA = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))


class ResultError(Exception):
    """A result file that cannot be used: which one, why, and what to do."""


def load(file: Path, program: str) -> pd.DataFrame:
    """The result in `file`, which must come from `program`."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        jsonschema.validate(document, SCHEMA)
    except FileNotFoundError:
        raise ResultError(f"{file}: there is no such file; run the benchmark {program} first") from None
    except (OSError, ValueError) as error:  # of JSON and UTF-8, too
        raise ResultError(f"{file}: cannot be read ({error}); delete it and run {program} again") from None
    except jsonschema.ValidationError as error:
        problem = f"does not fit schema.json at {error.json_path}: {error.message:.100}"
        raise ResultError(f"{file}: {problem}; delete it and run {program} again") from None
    if document["program"] != program:
        raise ResultError(f"{file}: comes from the program {document['program']}, not {program}; give another file")
    series = [{**one["labels"], "unit": one["unit"], "value": one["values"]} for one in document["series"]]
    table = pd.DataFrame(series, dtype=object).explode("value")  # object: whole numbers stay whole beside gaps
    table["call"] = table.groupby(level=0).cumcount()
    table = table.reset_index(drop=True).astype({"value": float})
    provenance = {"program": program, **document["provenance"]}
    table.attrs = {"program": program, "parameters": document["parameters"], "provenance": provenance}
    return table


def name_of(program: str, result: pd.DataFrame) -> str:
    """Such as program.solutions.quick: figures of different implementations or presets have different names."""
    provenance = result.attrs["provenance"]
    return f"{program}.{provenance['implementation']}.{provenance['preset']}"


def load_reference(name: str, as_printed: bool = False) -> pd.DataFrame:
    """The table <name>.csv, with its cells as numbers, or as they were printed; attrs["source"] has the comments."""
    file = FOLDER / f"{name}.csv"
    lines = file.read_text(encoding="utf-8").splitlines()
    source = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    kind = {"dtype": str, "keep_default_na": False} if as_printed else {}
    table = pd.read_csv(file, skiprows=len(source), **kind)
    table.attrs = {"source": source}
    return table


def setup_of(table: pd.DataFrame) -> str:
    (setup,) = (line for line in table.attrs["source"] if line.startswith("Setup: "))
    return setup.removeprefix("Setup: ")


def pick(table: pd.DataFrame, **labels: Any) -> pd.DataFrame:
    """The rows with these labels, without the labels that none of them has."""
    for name, wanted in labels.items():
        table = table[table[name] == wanted] if name in table else table.iloc[:0]
    return table.dropna(axis="columns", how="all").infer_objects() if len(table) else table


def simulated(result: pd.DataFrame) -> bool:
    """Whether it is of the simulated cluster, where one rank stands for all, and one value for each time."""
    return result.attrs["provenance"]["device"] == "simulated"


def link(result: pd.DataFrame) -> str:
    """The link that it was measured on, in words."""
    rate, latency = (result.attrs["parameters"][name] for name in ("rate_gbit", "latency_us"))
    limits = [f"{rate:g} Gbit/s"] if rate else []
    limits += [f"{latency:g} µs a message"] if latency else []
    return f"a link limited to {' and '.join(limits)}" if limits else "the machine's own link"


def left_out(wanted: Iterable[str], there: Collection[str]) -> str:
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


def provenance_in_words(results: list[pd.DataFrame]) -> str:
    """The line under a figure or table; its results must be of one implementation and preset."""
    of_all = [result.attrs["provenance"] for result in results]
    whose = list(dict.fromkeys(f"{of['implementation']}, {of['preset']} preset" for of in of_all))
    if len(whose) > 1:
        raise ResultError(f"the files are of {' and of '.join(whose)}; give files of one implementation and preset")

    def each(say: Callable[[dict[str, Any]], str]) -> str:
        """What `say` returns for each result, but once if it is the same for all."""
        return " and ".join(dict.fromkeys(map(say, of_all)))

    def commit(of: dict[str, Any]) -> str:
        digits, dash, dirty = of["commit"].partition("-")
        return digits[:8] + dash + dirty

    dates = sorted({of["date"][:10] for of in of_all})
    machine = each(lambda of: f"{of['gpu'] if of['device'] == 'cuda' else of['cpu']}, {of['cores']} cores")
    torch, seed = each(lambda of: f"torch {of['torch']}, {of['backend']}"), each(lambda of: str(of["seed"]))
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return " · ".join([machine, torch, whose[0], f"seed {seed}", f"commit {each(commit)}", days])
