"""What every text is held to: links resolve, commands are known to the table and run, what is quoted is as in the code;
and the form of the handouts."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.text_commands_test import CLASSES, Run, class_of, commands
from tests.tools.texts_test import Text, all_texts
from tools.grading.running import test_lists
from tools.grading.running.processes import GuardedProcess
from tools.grading.stages import Stage, all_stages
from tools.setup.toolchain import ROOT

SECTIONS = [
    "Goals",
    "Hours",
    "The idea",
    "A worked miniature",
    "Interface",
    "Cost model",
    "What is graded",
    "How to work",
    "Pitfalls",
    "Questions for the writeup",
    "Readings",
]
LONGEST = 1500  # words of a handout
PICTURES = 2


class Scratch(Text):
    """A text that is in no file."""

    def __init__(self, content: str) -> None:
        super().__init__(ROOT / "README.md")
        object.__setattr__(self, "said", content)

    @property
    def content(self) -> str:
        return self.said


def broken_links(text: Text) -> list[str]:
    broken = []
    for link in text.links():
        path, _, anchor = link.partition("#")
        target = (text.file.parent / path).resolve() if path else text.file
        if re.match(r"https?://|mailto:", link):
            continue
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and anchor not in (text if target == text.file else Text(target)).anchors():
            broken.append(f"{link}: no such heading")
    return broken


def test_all_links_resolve() -> None:
    assert sum(len(text.links()) for text in all_texts()) > 50
    assert {text.name: broken for text in all_texts() if (broken := broken_links(text))} == {}
    wrong = Scratch("[a](no.md) [b](#none) [c](https://x.org)")
    assert broken_links(wrong) == ["no.md: no such file", "#none: no such heading"]
    assert broken_links(Scratch("# A name, *here*\n[b](#a-name-here)")) == []


def test_paths_and_targets_that_contributors_read_of_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:docs|tools|tests|assignments|\.ci|writeup)/[\w./]+)`", text)
    paths = [path for path in named if "0N" not in path and "06_" not in path]
    assert len(paths) > 15 and [path for path in paths if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text() + (ROOT / "instructor.mk").read_text()
    for target in set(re.findall(r"\bmake ([a-z]+)\b", text)):
        assert re.search(rf"(?m)^{target}:", makefile), f"make {target}"


def test_each_command_is_in_the_table() -> None:
    unknown = [f"{command}   in {files[0]}" for command, files in commands().items() if class_of(command) is None]
    assert unknown == [], "say in tests/tools/text_commands_test.py what becomes of it"


def test_each_line_of_the_table_is_needed() -> None:
    known = list(commands())
    for pattern, found in CLASSES:
        assert any(re.fullmatch(pattern, command) for command in known), f"no text has {pattern}"
        assert isinstance(found, Run) or len(found.why) > 20, pattern


def test_where_commands_are_looked_for() -> None:
    prose = "x `make a` y `make`\n\n    make b  what it is\n    S = make c\n"
    fenced = "\n```sh\nls -l\nls \\\n  -a\n```\n```cpp\nmake d\n```\n"
    assert Scratch(prose + fenced).commands() == ["make a", "make b", "ls -l", "ls -a"]


# The commands run in a view of the checkout that nobody else sees: in namespaces of its own (mounts, and processes,
# which end with it) it is covered by an empty layer. What they write lies there, in memory, and is gone at the end.
SECONDS = 600  # for one command
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
NAMESPACES += [] if os.geteuid() == 0 else ["--map-root-user"]
COVER = """\
set -e
layer=$(mktemp -d) && mount -t tmpfs layer "$layer" && mkdir "$layer/new" "$layer/work"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$layer/new,workdir=$layer/work" "$1"
mount -t proc proc /proc
cd "$1"
set +e
"""
ONE = """\
( timeout --kill-after=10 {seconds} bash -c {command} ) > {log} 2>&1 < /dev/null
echo $? > {log}.code
"""


def in_a_view(script: str) -> list[str]:
    return [*NAMESPACES, "bash", "-c", COVER + script, "bash", str(ROOT)]


def can_cover() -> bool:
    if not shutil.which("unshare"):
        return False
    done = subprocess.run(in_a_view("touch covered && test -e covered"), capture_output=True, check=False)
    return done.returncode == 0 and not (ROOT / "covered").exists()


@pytest.mark.slow
def test_all_commands_run(tmp_path: Path, subtests) -> None:
    if not can_cover():
        pytest.skip("this system lets nobody mount an overlay in namespaces of their own")
    due: dict[str, Run] = {}  # what runs, each once
    for command in commands():
        if isinstance(found := class_of(command), Run):
            due.setdefault(found.instead or command, found)
    assert len(due) > 30
    logs = {runs: tmp_path / f"{index}.log" for index, runs in enumerate(due)}
    script = "".join(
        ONE.format(seconds=SECONDS, command=shlex.quote(runs), log=shlex.quote(str(log)))
        for runs, log in sorted(logs.items(), key=lambda each: due[each[0]].last)
    )
    # Nothing of what this very run was asked for, such as ALL=1.
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with GuardedProcess(in_a_view(script), env={**env, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}) as process:
        said = b"".join(data for channel, data in process.events() if channel == "output").decode()
    for runs, log in logs.items():
        with subtests.test(runs):
            code = log.with_name(f"{log.name}.code")
            assert code.exists(), f"it was not reached: {said}"
            printed = log.read_text(errors="replace")
            assert int(code.read_text()) in due[runs].codes, printed[-3000:]
            assert "Traceback" not in printed


@pytest.mark.parametrize("stage", all_stages(), ids=lambda stage: stage.name)
def test_a_handout_has_its_form(stage: Stage) -> None:
    handout = Text(ROOT / "assignments" / stage.name / "README.md")
    assert [title[3:] for title in handout.headings() if title.startswith("## ")] == SECTIONS
    assert len(handout.content.split()) <= LONGEST and len(handout.images()) == PICTURES
    assert stage.number not in ("02", "03") or "../../figures/gallery/timeline.virtual.png" in handout.images()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", handout.content, re.MULTILINE)
    assert {name for _, name in rows} == {spec.name for spec in test_lists.tests_of(stage)}
    assert sum(int(points) for points, _ in rows) == stage.points
    for source in (ROOT / "solutions" / stage.name).glob("*.cpp"):
        lines = {line.strip() for line in source.read_text().splitlines()}
        code = {line for line in lines if len(line) > 30 and not line.startswith(("//", "#", "at::Tensor y"))}
        assert [line for line in code if line in handout.content] == [], "a line of the solution"


def test_the_primers_code_is_compiled_and_run_word_for_word() -> None:
    primer, program = Text(ROOT / "docs/primer.md").content, (ROOT / "tests/harness/primer_test.cpp").read_text()
    blocks = re.findall(r"^```cpp\n(.*?)^```$", primer, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        (name,) = re.findall(r"^void (\w+)\(", block, re.MULTILINE)
        assert f"\n{block}\n" in program, "docs/primer.md quotes it differently"
        assert re.search(rf"\b{name}\((rank\.group\(\))?\);", program), f"nobody calls {name}()"
    assert {*re.findall(r"^void (\w+)\(", program, re.MULTILINE)} <= {*re.findall(r"void (\w+)\(", primer)}
    assert len(primer.split()) <= 1300  # two pages, the code included


TROUBLES = Text(ROOT / "docs" / "troubleshooting.md")
KINDS = {
    "Setting up",
    "Compiling",
    "Grading",
    "Ranks that hang, die or stop",
    "UNTRUSTED=1",
    "Figures and experiments",
    "The writeup",
}
OF_LIBTORCH = {"Index out of range", "tensor does not have a device"}
VARIES = "…"
SHORTEST = 3  # letters of a piece that is looked for
_MESSAGE = re.compile(r"\*\*`([^`]+)`\*\*")
_GAP = re.compile(r'"\s*(?:\+\s*)?f?"|\\n')  # between the parts of a literal


@functools.cache
def printed() -> str:
    """All sources, with literals in several parts put together."""
    files = [ROOT / "Makefile"]
    for folder in ("tools", "common", "tests/support", "benchmarks", "assignments"):
        files += sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".h", ".cpp"))
    return _squeeze(_GAP.sub("", "\n".join(file.read_text(encoding="utf-8") for file in files)))


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def missing_parts(message: str) -> list[str]:
    """The parts of a message that no source has."""
    parts = [part.strip(" .,:;") for part in _squeeze(message).split(VARIES)]
    return [part for part in parts if len(re.findall("[A-Za-z]", part)) >= SHORTEST and part not in printed()]


def test_each_message_of_troubleshooting_is_still_printed_and_followed_by_what_to_do() -> None:
    messages = set(_MESSAGE.findall(TROUBLES.content))
    assert len(messages) > 40
    assert {message: parts for message in messages - OF_LIBTORCH if (parts := missing_parts(message))} == {}
    assert missing_parts("the disk is full at …. Free some cheese") == ["Free some cheese"]
    for paragraph in re.split(r"\n\n+", TROUBLES.content):
        assert not paragraph.startswith("**") or len(_MESSAGE.sub("", paragraph).split()) > 5, paragraph
    assert {f"## {kind}" for kind in KINDS} <= {*TROUBLES.headings()}
