"""The figure scripts on small data, good and bad."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "figures"))

import naive_vs_flat  # noqa: E402
import result_files  # noqa: E402

TEST_DATA = ROOT / "figures" / "testdata"
OWN_LINK = TEST_DATA / "naive_vs_flat.own_link.json"
LIMITED_LINK = TEST_DATA / "naive_vs_flat.limited_link.json"

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}


def violations(value: Any, schema: dict[str, Any], where: str = "result") -> list[str]:
    """Where `value` breaks `schema`: as much of JSON Schema as figures/schema.json uses."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return [f"{where} is not of type {kinds}"]
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{where} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} is none of {schema['enum']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{where} does not match {schema['pattern']}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{where} is below {schema['minimum']}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{where} is too short")
        for index, item in enumerate(value):
            found += violations(item, schema.get("items", {}), f"{where}[{index}]")
    if isinstance(value, dict):
        found += [f"{where} lacks {name}" for name in schema.get("required", []) if name not in value]
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            found += [f"{where} has {name}"] if inner is False else violations(item, inner, f"{where}.{name}")
    return found


class Schema(unittest.TestCase):
    schema = json.loads((ROOT / "figures" / "schema.json").read_text())

    def test_describes_the_test_data(self) -> None:
        for file in TEST_DATA.glob("*.json"):
            self.assertEqual(violations(json.loads(file.read_text()), self.schema), [], file.name)

    def test_notices_what_is_wrong(self) -> None:
        document = json.loads(OWN_LINK.read_text())
        document["provenance"]["cores"] = 0
        document["series"][0]["values"] = []
        del document["provenance"]["host"]
        document["extra"] = 1
        self.assertEqual(len(violations(document, self.schema)), 4)


class NaiveVsFlat(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def draw(self, *files: Path, out: Path | None = None) -> tuple[int, str]:
        """The exit code and what was said on stderr."""
        errors = io.StringIO()
        arguments = ["--data", *map(str, files), "--out", str(out or self.folder / "out")]
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = naive_vs_flat.main(arguments)
        return code, errors.getvalue()

    def changed(self, change: Callable[[dict[str, Any]], None]) -> Path:
        document = json.loads(OWN_LINK.read_text())
        change(document)
        file = self.folder / "changed.json"
        file.write_text(json.dumps(document))
        return file

    def assert_refused(self, files: list[Path], message: str) -> None:
        code, errors = self.draw(*files)
        self.assertEqual(code, 1)
        self.assertIn(message, errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertFalse((self.folder / "out").exists())

    def test_writes_png_and_pdf(self) -> None:
        code, errors = self.draw(OWN_LINK, LIMITED_LINK)
        self.assertEqual((code, errors), (0, ""))
        names = sorted(file.name for file in (self.folder / "out").iterdir())
        self.assertEqual(names, ["naive_vs_flat.solutions.quick.pdf", "naive_vs_flat.solutions.quick.png"])
        self.assertGreater((self.folder / "out" / names[1]).stat().st_size, 10_000)

    def test_labels_have_units_shares_and_provenance(self) -> None:
        results = result_files.load_group(
            [OWN_LINK], "naive_vs_flat", shared=naive_vs_flat.SHARED_PARAMETERS, own=naive_vs_flat.PANEL_PARAMETERS
        )
        figure = naive_vs_flat.draw(results)
        texts = [text.get_text() for text in figure.texts + figure.axes[0].texts]
        self.assertTrue(any("commit 01234567" in text and "solutions" in text for text in texts), texts)
        self.assertTrue(any(re.fullmatch(r"\d+ ms\n\d+%", text) for text in texts), texts)
        self.assertIn("[ms]", figure.axes[0].get_xlabel())

    def test_missing_file(self) -> None:
        self.assert_refused([self.folder / "none.json"], "none.json: there is no such file; run the benchmark")

    def test_corrupt_file(self) -> None:
        file = self.folder / "half.json"
        file.write_text(OWN_LINK.read_text()[:500])
        self.assert_refused([file], "is not JSON")
        file.write_bytes(b"\xff\xfe")
        self.assert_refused([file], "is not JSON")
        file.write_text("[]")
        self.assert_refused([file], "is not a result of a benchmark")

    def test_folder_instead_of_a_file(self) -> None:
        self.assert_refused([self.folder], "cannot be read")

    def test_other_program_or_schema(self) -> None:
        self.assert_refused([self.changed(lambda d: d.update(program="ring"))], "comes from the program 'ring'")
        self.assert_refused([self.changed(lambda d: d.update(schema_version=2))], "schema version 2, not 1")

    def test_empty_data(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].clear())], "is empty")
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].clear())], "has no values of")

    def test_missing_series(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "has 0 series of variant flat, phase")

    def test_missing_parts(self) -> None:
        self.assert_refused([self.changed(lambda d: d["provenance"].pop("commit"))], "lacks provenance: commit")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("model"))], "lacks the parameter 'model'")
        self.assert_refused([self.changed(lambda d: d["series"][0].pop("unit"))], "without labels, unit or values")

    def test_wrong_unit(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"][0].update(unit="ms"))], "in 'ms', not in 's'")

    def test_values_that_are_not_numbers(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"][0].update(values=[None]))], "that is not a number")

    def test_uneven_steps(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].pop())], "number of steps")

    def test_mixed_data(self) -> None:
        for change, message in (
            (lambda d: d["provenance"].update(implementation="assignments"), "mix implementation"),
            (lambda d: d["provenance"].update(preset="full"), "mix preset: quick, full"),
            (lambda d: d["parameters"].update(model="resnet101"), "mix model: resnet50, resnet101"),
        ):
            self.assert_refused([OWN_LINK, self.changed(change)], message)

    def test_folder_that_cannot_be_written(self) -> None:
        (self.folder / "file").touch()
        code, errors = self.draw(OWN_LINK, out=self.folder / "file" / "out")
        self.assertEqual(code, 1)
        self.assertIn("choose another folder with --out", errors)


if __name__ == "__main__":
    unittest.main()
