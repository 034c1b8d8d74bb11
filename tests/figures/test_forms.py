"""The form of results and tables: the schemas in figures/, and what is really written."""

from __future__ import annotations

import json
import unittest
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from figures.lib import result_files, tables
from tests.figures.figure_test import OWN_LINK, ROOT, TEST_DATA, FigureTest  # first: it finds the scripts

FOLDER = ROOT / "figures" / "lib"
SCHEMAS = {name: json.loads((FOLDER / name).read_text()) for name in ("schema.json", "table_schema.json")}
REGISTRY = Registry().with_resources([(name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()])


def violations(document: Any, schema: str = "schema.json") -> list[str]:
    """Where `document` breaks the schema."""
    validator = Draft202012Validator(SCHEMAS[schema], registry=REGISTRY)
    return sorted(f"{error.json_path}: {error.message}" for error in validator.iter_errors(document))


class ResultForm(unittest.TestCase):
    def test_describes_the_test_data(self) -> None:
        documents = {file.name: json.loads(file.read_text()) for file in TEST_DATA.glob("*.json")}
        results = {name: document for name, document in documents.items() if "program" in document}
        self.assertGreater(len(results), 10)
        for name, document in results.items():
            self.assertEqual(violations(document), [], name)

    def test_notices_what_is_wrong(self) -> None:
        document = json.loads(OWN_LINK.read_text())
        document["provenance"]["cores"] = 0
        document["series"][0]["values"] = []
        del document["provenance"]["host"]
        document["extra"] = 1
        self.assertEqual(len(violations(document)), 4)


class TableForm(FigureTest):
    def save(self, **changes: Any) -> dict[str, Any]:
        result = result_files.load(OWN_LINK, "naive_vs_flat")
        parts = {"title": "µs", "columns": ["a", "b"], "rows": [["1", "2"]], "text": "| a | b |\n", "results": [result]}
        self.files = tables.save(
            tables.Table(**(parts | changes)), self.folder / "new", "naive_vs_flat.solutions.quick"
        )
        return json.loads(self.files[1].read_text())

    def test_is_written_as_text_and_as_json(self) -> None:
        document = self.save()
        self.assertEqual(
            [file.name for file in self.files],
            ["naive_vs_flat.solutions.quick.txt", "naive_vs_flat.solutions.quick.json"],
        )
        text, origin = self.files[0].read_text().split("\n\n")
        self.assertEqual(text, "| a | b |")
        self.assertIn("solutions, quick preset", origin)
        self.assertEqual(violations(document, "table_schema.json"), [])
        self.assertEqual(document["provenance"][0]["implementation"], "solutions")
        self.assertEqual(len(list((self.folder / "new").iterdir())), 2, "nothing temporary is left")

    def test_without_rows_breaks_the_schema(self) -> None:
        self.assertEqual(len(violations(self.save(rows=[]), "table_schema.json")), 1)
