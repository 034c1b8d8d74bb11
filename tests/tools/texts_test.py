"""What tests of the texts share: every Markdown file of the checkout, with its headings, links and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.setup.toolchain import ROOT

# Words that begin a command in an indented block, where formulas and drawings stand as well, or between backticks. In a
# block that is fenced as ```sh every line is a command.
PROGRAMS = "make cmake git cd cp torchrun mpirun srun sbatch kubectl docker gdb sudo".split()
_COMMAND = re.compile(
    rf"(?:[A-Z_]+=\S+ +)*(?:(?:{'|'.join(PROGRAMS)})(?= |$)|python3? -m|\.venv/bin/\S+ |build/bin/\S+ ).*"
)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ *```(\w*)")
SHELLS = ("sh", "bash", "shell")


@dataclass(frozen=True)
class Text:
    file: Path

    @property
    def name(self) -> str:
        return str(self.file.relative_to(ROOT))

    @property
    def content(self) -> str:
        return self.file.read_text(encoding="utf-8")

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each line with the block that it stands in: "prose", "indented", or "fenced" and its language."""
        fence, block, before = None, "prose", ""
        for line in self.content.splitlines():
            if found := _FENCE.match(line):
                fence = f"fenced {found[1]}" if fence is None else None
                continue
            if not line.strip():
                block = block if block == "indented" else "prose"
            elif not line.startswith("    "):
                block = "prose"
            elif not before.strip():
                block = "indented"
            before = line
            yield fence or block, line

    def prose(self) -> str:
        return "\n".join(line for block, line in self.lines() if block == "prose")

    def headings(self) -> list[str]:
        return [line for line in self.prose().splitlines() if line.startswith("#")]

    def anchors(self) -> set[str]:
        """Of its headings, as GitHub makes them."""
        return {re.sub(r"[^\w\- ]", "", title.lstrip("# ").lower()).replace(" ", "-") for title in self.headings()}

    def links(self) -> list[str]:
        return _LINK.findall(self.prose())

    def images(self) -> list[str]:
        return _IMAGE.findall(self.prose())

    def commands(self) -> list[str]:
        """Without what is said beside them, which two spaces part from them; continued lines are joined."""
        blocks, continued = [], ""
        for block, line in self.lines():
            if block == "prose":
                blocks += [span for span in _INLINE.findall(line) if _COMMAND.fullmatch(span) and " " in span]
                continue
            line = continued + line.strip()
            continued = line[:-1].rstrip() + " " if line.endswith("\\") else ""
            shell = block.removeprefix("fenced ") in SHELLS
            if not continued and line and (shell or (block == "indented" and _COMMAND.fullmatch(line))):
                blocks.append(re.split(r"  +", line)[0] if not shell else line.partition("  #")[0].rstrip())
        return [command for command in blocks if not command.startswith("#")]


def all_texts() -> list[Text]:
    """But those that a tool has installed or built."""
    files = (path for path in ROOT.rglob("*.md") if not path.relative_to(ROOT).parts[0].startswith((".venv", "build")))
    return [Text(file) for file in sorted(files)]
