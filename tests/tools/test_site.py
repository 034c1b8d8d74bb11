"""`make site`: it has each text once, its links lead somewhere, and nothing of a solution is on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.release_helpers import known_activity, working_tree, write
from tests.tools.test_release import Leaks
from tools.course import release, site
from tools.setup.toolchain import ROOT, LabError

EXAMPLE = {
    "README.md": "# Lab\n\n[Header](assignments/01_sums/sums.h), [stage](assignments/01_sums/README.md#idea)\n",
    "assignments/01_sums/README.md": "# Sums\n\n## Idea\n\n[Lab](../../README.md)\n",
    "assignments/01_sums/sums.h": "int sum();  // `code`\n",
    "solutions/README.md": "# Solutions\n",
}


def test_it_is_made_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="make check installs it")
    assert site.make(ROOT, tmp_path) == 0
    pages = (".", "INSTRUCTOR", "assignments/03_bucketed_ddp", "assignments/03_bucketed_ddp/bucketed_ddp.h")
    assert all((tmp_path / "html" / page / "index.html").exists() for page in pages)


@pytest.mark.parametrize("released", [False, True])
def test_nothing_of_a_solution_is_on_it(released: bool, tmp_path: Path) -> None:
    tree = ROOT
    if released:
        tree = tmp_path / "ddp-lab"
        with known_activity(tmp_path / "activity.json"):
            release.write_tree(tree, working_tree())
    chapters = site.write_pages(tree, tmp_path / "docs")
    assert ("For instructors" in chapters) is not released
    assert len(chapters["Stages"]) == len([*(ROOT / "assignments").glob("0*")])
    assert not [*(tmp_path / "docs").rglob("solutions*")]
    if released:
        assert Leaks().found(tmp_path / "docs") == []


def test_a_source_becomes_a_page(tmp_path: Path) -> None:
    write(tmp_path, EXAMPLE)
    assert site.write_pages(tmp_path, tmp_path / "docs") == {"Stages": ["assignments/01_sums/README.md"]}
    assert "(assignments/01_sums/sums.h.md)" in (tmp_path / "docs/README.md").read_text()
    page = (tmp_path / "docs/assignments/01_sums/sums.h.md").read_text()
    assert page == "# sums.h\n\n````cpp\nint sum();  // `code`\n````\n"


@pytest.mark.parametrize(
    ("link", "said"), [("gone.md", "is no file of"), ("solutions/README.md", "is no page of the site")]
)
def test_a_link_that_leads_nowhere_is_an_error(link: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, {**EXAMPLE, "README.md": f"[here]({link})\n"})
    with pytest.raises(LabError, match=said):
        site.write_pages(tmp_path, tmp_path / "docs")
