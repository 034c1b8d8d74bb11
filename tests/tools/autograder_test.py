"""What tests of the autograder share: submissions, and a folder laid out as Gradescope's."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

from tests.tools.grading_test import processes_in
from tests.tools.release_test import known_signs, working_tree, write
from tools.course import autograder
from tools.grading.stages import all_stages
from tools.setup import toolchain
from tools.setup.toolchain import ROOT

FIRST, FOURTH, FIFTH = "01_naive_ddp", "04_sync_batch_norm", "05_ring_all_reduce"
SEED = 424242424
# Its names may be those of the lab's own tests, as kMean is.
HIDDEN = """\
#include <ATen/ATen.h>

#include "01_naive_ddp/naive_ddp.h"
#include "ddp/referee/client.h"
#include "support/body.h"
#include "support/grading.h"

namespace ddp::testing {
namespace {

void average_a_scalar(Client& client) {
  const at::Tensor scalar = at::ones({}).set_requires_grad(true);
  const auto synchronizer = make_naive_ddp({scalar}, {}, make_group(client.shared_from_this()));
  (scalar * (1.0 + client.rank())).backward();
  synchronizer->finish();
  client.value("gradient", scalar.grad());
}

std::string is_the_mean(const Evidence& evidence) {
  for (const Seen& seen : evidence.of[0]) {
    if (seen.kind == EventKind::kValue && seen.value.item<double>() != 1.5) {
      return "the gradient of a scalar is not the mean of 1 and 2";
    }
  }
  return "";
}

const GradedTest kMean{{.name = "a_scalar_is_averaged", .points = 3, .hint = "No dimension is a shape, too."},
                       [] { judge({{"a scalar", {}, average_a_scalar, "a_scalar_is_averaged"}}, is_the_mean); }};

}  // namespace
}  // namespace ddp::testing
"""


def files_of(stage: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in (ROOT / "solutions" / stage).iterdir() if path.suffix != ".md"}


def solution(stage: str) -> str:
    """In one file: where the solution has several, the last of the variants."""
    if len(files := files_of(stage)) == 1:
        return files.popitem()[1]
    return max((ROOT / "tests/variants" / stage).glob("*.cpp")).read_text()


def stage_with(stage: str, top: str, statement: str) -> str:
    """The solution with lines at its top, and a statement at the beginning of its first public function."""
    code = solution(stage)
    place = code.index("{\n", code.index("}  // namespace\n")) + 2 if statement else 0
    return f"{top}\n{code[:place]}{statement}\n{code[place:]}"


class Layout:
    """<root>/source, submission and results, as Gradescope lays them out."""

    def __init__(self, top: Path) -> None:
        self.top, self.made, self.root = top, top / "made", top / "autograder"
        write(top / "instructors", {f"{FIRST}/scalar.cpp": HIDDEN, "seed": f"{SEED}\n"})
        with known_signs(top / "signs.json"):
            self.added = autograder.write_source(self.made / "source", working_tree(), top / "instructors")
        autograder.write_archive(self.made)
        for name in ("source", "submission"):
            (self.root / name).mkdir(parents=True)
        with zipfile.ZipFile(self.made / "autograder.zip") as archive:
            archive.extractall(self.root / "source")
        shutil.copy(self.root / "source/run_autograder", self.root)
        # Without a limit of time: how long it takes hangs on what else this machine does.
        self.command = ["bash", str(self.root / "run_autograder"), "--limit=1800"]
        self.environment = {**os.environ, "AUTOGRADER_ROOT": str(self.root)}

    def prepare(self) -> None:
        """Builds all of it, as Gradescope does once."""
        tools = toolchain.load()
        given = {"PYTHON": tools.python} if tools.python else {"LIBTORCH": tools.libtorch}
        self.given = {**given, "CXX": tools.cxx}
        command = ["bash", str(self.root / "source/setup.sh")]
        env = {**os.environ, **self.given}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800)
        assert not (self.root / "source/solutions").exists()
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def submit(self, codes: dict[str, str | dict[str, str]], top: Path | None = None) -> None:
        """By the stage's name: its source, or its files."""
        for stage in all_stages():
            files = codes.get(stage.name, {})
            files = {stage.sources("assignments")[0].name: files} if isinstance(files, str) else files
            write((top or self.root / "submission") / "assignments" / stage.name, files)

    def grade(self, codes: dict[str, str | dict[str, str]], *options: str) -> dict:
        self.submit(codes)
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [*self.command, *options]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=1800)
        self.said, used = done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert "Traceback" not in done.stdout + done.stderr
        processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        print(f"\n{time.monotonic() - began:.0f} s, of processors {processor:.0f} s")
        assert processes_in(self.root) == []
        return self.results()

    def results(self) -> dict:
        return json.loads((self.root / "results/results.json").read_bytes())
