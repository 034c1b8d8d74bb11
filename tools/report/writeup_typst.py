"""Typst's part of `make writeup`, run by the Python that has it: a request as JSON on stdin, an answer on stdout.

Request: root, input, inputs (sys.inputs), queries (labels), and output, a file for the PDF, if one is wanted. Answer:
{"found": {label: values}}, or {"diagnostic": Typst's text of an error}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typst


def answer(request: dict[str, Any]) -> dict[str, Any]:
    # Only Typst's own fonts, so that the same sources give the same pages everywhere.
    settings = {"root": request["root"], "sys_inputs": request["inputs"], "ignore_system_fonts": True}
    try:  # first, because a query does not say where an error is
        pdf = typst.compile(request["input"], format="pdf", **settings)
    except typst.TypstError as error:
        return {"diagnostic": error.diagnostic or str(error)}
    if "output" in request:
        Path(request["output"]).write_bytes(pdf)
    found = {
        label: json.loads(typst.query(request["input"], f"<{label}>", field="value", **settings))
        for label in request["queries"]
    }
    return {"found": found}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
