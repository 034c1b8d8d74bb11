"""Makes a course site of the texts: build/site/html. `make site FROM=build/release/ddp-lab` makes it of a release.

No page is written for it alone. It has what PAGES names and the tree has, never a solution. A source that a text links
to, such as a contract, becomes a page, too; a link that leads nowhere is an error.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tools.grading.terminal import ending_of
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

PAGES = {
    "Stages": ("assignments/*/README.md",),
    "Guides": (
        "docs/primer.md",
        "docs/glossary.md",
        "docs/troubleshooting.md",
        "docs/setup.md",
        "docs/editors.md",
        "docs/several_machines.md",
        "benchmarks/README.md",
        "writeup/README.md",
    ),
    "For instructors": ("INSTRUCTOR.md", "docs/attacks.md"),
    "For contributors": ("CONTRIBUTING.md", "docs/architecture.md", "CHANGELOG.md", "*/README.md"),
}
HOME, SOURCES, SITE = "README.md", "docs", "html"
PICTURES = (".png", ".svg")
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)")
_TITLE = re.compile(r"^# (.*)", re.MULTILINE)
_CODE = re.compile(r"^ *```.*?^ *```|^ {4}[^\n]*|`[^`\n]+`", re.MULTILINE | re.DOTALL)
CONFIGURATION = """\
[project]
site_name = "ddp-lab"
site_description = "Build distributed data-parallel training yourself, in C++ on libtorch"
site_url = {address}
repo_url = {repository}
docs_dir = "docs"
site_dir = "html"
nav = {navigation}
[project.theme]
features = ["content.code.copy", "navigation.tabs", "navigation.top", "navigation.footer", "search.highlight"]
palette = [
  {{ media = "(prefers-color-scheme: light)", scheme = "default", toggle.icon = "lucide/sun", toggle.name = "Dark" }},
  {{ media = "(prefers-color-scheme: dark)", scheme = "slate", toggle.icon = "lucide/moon", toggle.name = "Light" }},
]
[project.markdown_extensions]
tables = {{}}
md_in_html = {{}}
toc.permalink = true
pymdownx.highlight = {{}}
pymdownx.superfences.custom_fences = [
  {{ name = "mermaid", class = "mermaid", format = "pymdownx.superfences.fence_code_format" }},
]
"""


def navigation(tree: Path) -> dict[str, list[str]]:
    """By chapter, the pages that the tree has, each once."""
    found: dict[str, list[str]] = {}
    seen = {HOME}
    for chapter, patterns in PAGES.items():
        names = [path.relative_to(tree).as_posix() for pattern in patterns for path in sorted(tree.glob(pattern))]
        found[chapter] = [name for name in names if not name.startswith(("solutions", "build")) and name not in seen]
        seen.update(found[chapter])
    return {chapter: names for chapter, names in found.items() if names}


def links(text: str) -> Iterator[str]:
    yield from _LINK.findall(_CODE.sub("", text))


def page_of(name: str) -> str:
    """The page that shows a file: a text itself, a picture none, a source one of its own."""
    return name if name.endswith((".md", *PICTURES)) else f"{name}.md"


def write_pages(tree: Path, folder: Path) -> dict[str, list[str]]:
    """The site's sources: the texts, and whatever they show or link to."""
    chapters = navigation(tree)
    pages = [HOME, *(name for names in chapters.values() for name in names)]
    for name in pages:
        text = (tree / name).read_text(encoding="utf-8")
        for link in {*links(text)}:
            target = os.path.normpath(Path(name).parent / link)
            if not (tree / target).is_file():
                raise LabError(f"{name} links to {link}, which is no file of {tree}")
            if target.endswith(".md") and target not in pages:
                raise LabError(f"{name} links to {link}, which is no page of the site: tools/course/site.py, PAGES")
            if not target.endswith(".md"):
                _write(tree / target, folder / page_of(target))
        _write_text(folder / name, _linking_to_pages(text))
    return chapters


def _linking_to_pages(text: str) -> str:
    return _LINK.sub(lambda link: page_of(link[1]), text)


def _write(source: Path, page: Path) -> None:
    if source.suffix in PICTURES:
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, page)
        return
    code, language = source.read_text(encoding="utf-8").rstrip(), {".h": "cpp"}.get(source.suffix, source.suffix[1:])
    _write_text(page, f"# {source.name}\n\n````{language}\n{code}\n````\n")


def _write_text(page: Path, text: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")


def configuration(tree: Path, chapters: dict[str, list[str]]) -> str:
    """GitHub's runners say by GITHUB_REPOSITORY whose site it is."""

    def entry(name: str) -> str:
        title = _TITLE.search((tree / name).read_text(encoding="utf-8"))
        return f"{{ {json.dumps(title[1] if title else name)} = {json.dumps(name)} }}"

    parts = [f'{{ "Home" = "{HOME}" }}']
    parts += [f"{{ {json.dumps(chapter)} = [{', '.join(map(entry, names))}] }}" for chapter, names in chapters.items()]
    owner, _, name = os.environ.get("GITHUB_REPOSITORY", "").partition("/")
    address, repository = f"https://{owner}.github.io/{name}/", f"https://github.com/{owner}/{name}"
    return CONFIGURATION.format(
        navigation=f"[{', '.join(parts)}]",
        address=json.dumps(address if owner else ""),
        repository=json.dumps(repository if owner else ""),
    )


def make(tree: Path = ROOT, folder: Path = BUILD_DIR / "site") -> int:
    shutil.rmtree(folder, ignore_errors=True)
    chapters = write_pages(tree, folder / SOURCES)
    (folder / "zensical.toml").write_text(configuration(tree, chapters), encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, check=False)
    if done.returncode == 0:
        print(f"The site: {folder / SITE}/index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(ending_of("make site", partial(make, *map(Path, sys.argv[1:2]))))
