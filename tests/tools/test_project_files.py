"""What stands in the repository about the repository: versions, citation, changelog, examples for several machines."""

from __future__ import annotations

import re
import subprocess
import unittest
from collections.abc import Iterator

from tests.tools.workflow_test import parse
from tools.setup.toolchain import BUILD_DIR, ROOT

EXAMPLES = ROOT / "docs/several_machines"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def version() -> str:
    return re.search(r"^project\(ddp_lab VERSION (\d+\.\d+\.\d+) ", read("CMakeLists.txt"), re.MULTILINE)[1]


class Versions(unittest.TestCase):
    def test_there_is_one(self) -> None:
        self.assertEqual(re.search(r"^version: (.*)$", read("CITATION.cff"), re.MULTILINE)[1], version())
        self.assertEqual(self.releases()[0][0], version())
        self.assertIn(f"/ddp-lab:{version()}\n", read("docs/several_machines/pytorchjob.yaml"))

    def releases(self) -> list[tuple[str, str]]:
        return re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)

    def test_the_changelog_keeps_its_form(self) -> None:
        headings = re.findall(r"^## (.*)$", read("CHANGELOG.md"), re.MULTILINE)
        self.assertEqual(headings[0], "[Unreleased]")
        self.assertEqual(len(headings), len(self.releases()) + 1, headings)
        kinds = set(re.findall(r"^### (.*)$", read("CHANGELOG.md"), re.MULTILINE))
        self.assertLessEqual(kinds, {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"})
        dates = [date for _, date in self.releases()]
        self.assertEqual(dates, sorted(dates, reverse=True))

    def test_the_citation_has_what_the_format_asks_for(self) -> None:
        """Citation File Format 1.2.0: its required fields, and the types of those that are there."""
        citation = parse(self, ROOT / "CITATION.cff")
        known = {"cff-version", "message", "title", "authors", "type", "abstract", "version", "date-released",
                 "license", "keywords", "references"}  # fmt: skip
        self.assertLessEqual({"cff-version", "message", "title", "authors"}, citation.keys())
        self.assertLessEqual(citation.keys(), known)
        self.assertEqual((citation["cff-version"], citation["type"]), ("1.2.0", "software"))
        self.assertEqual(citation["date-released"], self.releases()[0][1])
        self.assertIsInstance(citation["version"], str)
        for work in (citation, *citation["references"]):
            self.assertTrue(work["authors"])
            for author in work["authors"]:
                self.assertLessEqual(author.keys(), {"name", "family-names", "given-names"})


class Examples(unittest.TestCase):
    """Commands for several machines: the programs are there, and know the flags."""

    def assert_known(self, program: str, arguments: list[str]) -> None:
        binary = BUILD_DIR / "bin" / program.removeprefix("build/bin/")
        source = ROOT / "benchmarks/experiments" / binary.name / f"{binary.name}.cpp"
        self.assertTrue(source.exists(), f"{program} is not made of any experiment")
        if not binary.exists():
            self.skipTest(f"skipped: {binary} is not built")
        said = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=60).stdout
        for flag in (each for each in arguments if each.startswith("--")):
            self.assertRegex(said, rf"(?m)^ +(-\w,\s*)?{flag}\b", f"{program} has no {flag}")

    def test_of_the_script_for_slurm(self) -> None:
        path = EXAMPLES / "two_nodes.sbatch"
        text = path.read_text()
        self.assertEqual(subprocess.run(["bash", "-n", path], capture_output=True).stderr, b"")
        self.assertIn("#SBATCH --nodes=2\n", text)
        runs = re.findall(r"^run (build/bin/\w+) (.*)$", text, re.MULTILINE)
        self.assertGreaterEqual(len(runs), 3)
        for program, arguments in runs:
            with self.subTest(program):
                self.assert_known(program, arguments.split())

    def test_of_the_job_for_kubernetes(self) -> None:
        job = parse(self, EXAMPLES / "pytorchjob.yaml")
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v1", "PyTorchJob"))
        replicas = job["spec"]["pytorchReplicaSpecs"]
        self.assertEqual((replicas.keys(), replicas["Master"]["replicas"]), ({"Master", "Worker"}, 1))
        for each in replicas.values():
            (container,) = each["template"]["spec"]["containers"]
            self.assertEqual(container["name"], "pytorch")  # by which the operator knows it
            program, *arguments = container["command"]
            self.assert_known(program, arguments)

    def test_of_the_page(self) -> None:
        commands = list(commands_of(read("docs/several_machines.md")))
        self.assertGreaterEqual(len(commands), 6)
        for program, arguments in commands:
            with self.subTest(f"{program} {arguments}"):
                self.assert_known(program, arguments.split())


def commands_of(page: str) -> Iterator[tuple[str, str]]:
    """The programs in a page's indented lines, with what follows them; a line that ends with \\ goes on."""
    lines = re.findall(r"^    .*$", page.replace("\\\n", ""), re.MULTILINE)
    return ((found[1], found[2]) for line in lines if (found := re.search(r"(build/bin/\w+)(.*)", line)))


class Contributing(unittest.TestCase):
    def test_paths_exist(self) -> None:
        text = read("CONTRIBUTING.md")
        links = re.findall(r"\]\((\S+?)\)", text)
        named = re.findall(r"`((?:docs|tools|tests|assignments|\.ci|writeup)/[\w./]+)`", text)
        self.assertGreater(len(links + named), 15)
        for path in [*links, *(each for each in named if "0N" not in each and "06_" not in each)]:
            with self.subTest(path):
                self.assertTrue((ROOT / path).exists())

    def test_targets_exist(self) -> None:
        makefile = read("Makefile") + read("instructor.mk")
        for target in set(re.findall(r"\bmake ([a-z]+)\b", read("CONTRIBUTING.md"))):
            self.assertRegex(makefile, rf"(?m)^{target}:", f"make {target}")
