"""Pages of HTML: templates/<name>.html, filled in. What comes from a student is text there, never markup."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.grading.scoring.results import replace_file
from tools.setup.toolchain import LabError

TEMPLATES = Path(__file__).with_name("templates")


def write(path: Path, template: str, **content: object) -> None:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise LabError(f"{sys.executable} has no jinja2, which writes the pages: `make class` brings it") from None
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template).render(content)
    replace_file(path, page.encode(errors="replace"))
