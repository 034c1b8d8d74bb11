"""What tests of the autograder share: a folder laid out as Gradescope's, and submissions."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
import zipfile
from pathlib import Path

from tests.tools.release_test import working_tree
from tools.course import autograder
from tools.setup.toolchain import ROOT

FIRST, FIFTH = "01_naive_ddp", "05_ring_all_reduce"
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


class Layout(unittest.TestCase):
    """<root>/source, submission and results, as Gradescope lays them out."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.top = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="ddp-lab-gradescope-"))).resolve()
        if cls.top.parent.stat().st_uid == os.getuid():  # who grades is nobody, and has to get there
            cls.top.parent.chmod(cls.top.parent.stat().st_mode | 0o011)
        cls.top.chmod(0o755)
        tests = cls.top / "instructors"
        (tests / FIRST).mkdir(parents=True)
        (tests / FIRST / "scalar.cpp").write_text(HIDDEN)
        (tests / "seed").write_text(f"{SEED}\n")
        cls.made = cls.top / "made"
        cls.added = autograder.write_source(cls.made / "source", working_tree(), tests)
        autograder.write_archives(cls.made)
        cls.root = cls.top / "autograder"
        for name in ("source", "submission"):
            (cls.root / name).mkdir(parents=True)
        with zipfile.ZipFile(cls.made / "autograder.zip") as archive:
            archive.extractall(cls.root / "source")
        shutil.copy(cls.root / "source/run_autograder", cls.root)
