"""A stage is a folder: a sixth one, added to a copy of the checkout by adding folders only, is built and graded, its
mutant dies, and all_stages runs it. Builds the lab's library anew, which takes a minute."""

from __future__ import annotations

import json
import shutil
import subprocess
import unittest

import pytest

from tools.setup import toolchain
from tools.setup.toolchain import ROOT

STAGE = "99_scaled_sum"
HEADER = """\
#pragma once

#include <ATen/core/Tensor.h>

#include "ddp/collectives.h"

namespace ddp {

/// Replaces `tensor` by `factor` times its sum over all ranks. Collective.
void scaled_sum(at::Tensor tensor, double factor, const ProcessGroupPtr& group);

}  // namespace ddp
"""
SOURCE = """\
#include "99_scaled_sum/scaled_sum.h"

#include <ATen/ATen.h>

namespace ddp {{

void scaled_sum(at::Tensor tensor, double factor, const ProcessGroupPtr& group) {{
  {body}
}}

}}  // namespace ddp
"""
STUB = 'TORCH_CHECK_NOT_IMPLEMENTED(false, "TODO(student): 99 scaled sum: scaled_sum");'
SOLUTION = "all_reduce(tensor, group);\n  tensor.mul_(factor);"
TEST = """\
#include <ATen/ATen.h>

#include "99_scaled_sum/scaled_sum.h"
#include "ddp/referee/client.h"
#include "support/body.h"
#include "support/grading.h"

namespace ddp::testing {
namespace {

void call_it(Client& client) {
  const at::Tensor tensor = at::ones({4});
  scaled_sum(tensor, 3, make_group(client.shared_from_this()));
  client.value("sum", tensor);
}

std::string sum_is_scaled(const Evidence& evidence) {
  for (const Seen& seen : evidence.of[0]) {
    if (seen.kind == EventKind::kValue && !seen.value.eq(6).all().item<bool>()) {
      return "the scaled sum is wrong";
    }
  }
  return "";
}

const GradedTest kSum{{.name = "sum_is_scaled", .points = 3, .hint = "Sum first."}, [] {
  judge({{"one call", {}, call_it, "sum_is_scaled"}}, sum_is_scaled);
}};

}  // namespace
}  // namespace ddp::testing
"""
SMOKE = """\
#include <ATen/ATen.h>

#include "99_scaled_sum/scaled_sum.h"
#include "experiments/all_stages/smoke_test.h"

namespace ddp {
namespace {

const bool kRegistered = register_smoke_test({"99_scaled_sum", [](const DeviceContext& device_context) {
  scaled_sum(at::ones({4}), 2, device_context.group);
}});

}  // namespace
}  // namespace ddp
"""
MUTANT = """\
## forgets_to_scale
Mistake: forgets to scale
Killed-by: sum_is_scaled
Only: yes
Says: the scaled sum is wrong
@@
-  tensor.mul_(factor);
"""
FILES = {
    f"assignments/{STAGE}/stage.json": json.dumps({"number": "99", "title": "scaled sum", "points": 3}),
    f"assignments/{STAGE}/scaled_sum.h": HEADER,
    f"assignments/{STAGE}/scaled_sum.cpp": SOURCE.format(body=STUB),
    f"solutions/{STAGE}/scaled_sum.cpp": SOURCE.format(body=SOLUTION),
    f"tests/{STAGE}/01_sum.cpp": TEST,
    f"tests/mutants/{STAGE}.diff": MUTANT,
    f"benchmarks/experiments/all_stages/{STAGE}/smoke.cpp": SMOKE,
}


@pytest.mark.slow
class SixthStage(unittest.TestCase):
    def setUp(self) -> None:
        self.lab = self.folder / "lab"
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (self.lab / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, self.lab / name)
        for name, text in FILES.items():
            (self.lab / name).parent.mkdir(parents=True, exist_ok=True)
            (self.lab / name).write_text(text)
        self.python = toolchain.load().python

    def run_here(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(command, cwd=self.lab, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_is_graded_by_adding_folders(self) -> None:
        given = [f"PYTHON={self.python}"] if self.python else [f"LIBTORCH={toolchain.load().libtorch}"]
        stub = self.run_here("make", "test", "STAGE=99", *given, code=2)
        self.assertIn("TODO line 8", stub)
        self.assertIn("assignments/99_scaled_sum/scaled_sum.cpp:8", stub)
        self.assertIn("Total  0 / 3 points", stub)
        solution = self.run_here("make", "test", "STAGE=99", "IMPL=solutions", "TEST=sum_is_scaled")
        self.assertIn("Total  3 / 3 points", solution)
        self.assertIn("99 scaled sum", solution)
        mutant = f"check.mutants.{STAGE}.forgets_to_scale"
        self.assertIn("100% tests passed", self.run_here("ctest", "--test-dir", "build", "-R", mutant))
        self.run_here("cmake", "--build", "build", "--target", "all_stages")
        smoke = self.run_here("build/bin/all_stages", "--impl=solutions", code=1)  # the others are not built
        self.assertRegex(smoke, r"99_scaled_sum +\d")
