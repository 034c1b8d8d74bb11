"""Tests of stage 05's benchmarks, run on the solution: what they measure, what they refuse, and that their figures can
be drawn of it.

Run: python3 -m unittest discover tests/meta
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "figures"), str(ROOT / "tests" / "meta")]

import toolchain  # noqa: E402
from all_reduce_costs import ALGORITHMS, formula_seconds  # noqa: E402
from test_launch import environment, free_port  # noqa: E402

BUILD = toolchain.BUILD_DIR
PROGRAMS = ("ring_all_reduce", "all_reduce_bandwidth", "all_reduce_algorithms")
LIBRARIES = [BUILD / "stages" / impl / "05_ring_all_reduce" / "libstage.so" for impl in ("solutions", "assignments")]
BUILT = all(file.exists() for file in (*LIBRARIES, *(BUILD / "bin" / program for program in PROGRAMS)))
UNFINISHED = 3
SECONDS = 120


@unittest.skipUnless(BUILT, f"skipped: {BUILD} lacks {', '.join(PROGRAMS)} or stage 05")
class ProgramTest(unittest.TestCase):
    program: str

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.result = self.folder / "result.json"

    def start(self, *flags: object, impl: str = "solutions", **variables: object) -> subprocess.CompletedProcess[str]:
        command = [BUILD / "bin" / self.program, "--impl", impl, "--output", self.result, *map(str, flags)]
        return subprocess.run(
            command, cwd=self.folder, env=environment(**variables), text=True, capture_output=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip

    def run_well(self, *flags: object, **variables: object) -> dict[str, Any]:
        ended = self.start(*flags, **variables)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(self.result.read_text())

    def series(self, document: dict[str, Any], **labels: object) -> list[dict[str, Any]]:
        return [one for one in document["series"] if labels.items() <= one["labels"].items()]

    def assert_refused(self, message: str, *flags: object, code: int = 1, **variables: object) -> None:
        ended = self.start(*flags, **variables)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.assertIn(message, ended.stderr)
        self.assertFalse(self.result.exists())

    def assert_unfinished(self, *flags: object) -> None:
        message = "05_ring_all_reduce is unfinished: TODO(student)"
        self.assert_refused(message, *flags, code=UNFINISHED, impl="assignments")

    def assert_drawn(self) -> None:
        """What was written has all that its figure needs."""
        script = ROOT / "figures" / f"{self.program}.py"
        command = [toolchain.load().figure_python, script, "--data", self.result, "--out", self.folder / "out"]
        if subprocess.run([command[0], "-c", "import matplotlib"], capture_output=True, check=False).returncode:
            self.skipTest("no Python with matplotlib")
        ended = subprocess.run(command, text=True, capture_output=True, timeout=SECONDS, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(len(list((self.folder / "out").iterdir())), 2)

    def assert_output_is_checked(self, *flags: object) -> None:
        (self.folder / "file").touch()
        self.result = self.folder / "file" / "result.json"
        ended = self.start(*flags)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("Not a directory", ended.stderr)


class RingAllReduce(ProgramTest):
    program = "ring_all_reduce"
    tiny = ("--rounds", "1", "--warmup", "0")

    def test_measures_all_worlds_in_one_run(self) -> None:
        document = self.run_well(*self.tiny)
        cells = {
            tuple(one["labels"][name] for name in ("peer", "world_size", "tensor_size")) for one in document["series"]
        }
        butterfly = {("butterfly", world, world) for world in (1, 2, 4, 8, 16, 32)}
        pairs = ((1, 1024), (2, 2048), (4, 4096), (8, 16384), (16, 131072))
        self.assertEqual(cells, butterfly | {("all_reduce", *pair) for pair in pairs})
        self.assertEqual(len(document["series"]), len(cells) * 2 * 4)
        self.assertEqual(document["provenance"]["world_size"], 32)
        for unit, least, most in (("s", 0, 60), ("KiB", 1 << 10, 1 << 25), ("bytes", 0, 1 << 20), ("1", 0, 1e-8)):
            for one in self.series(document):
                if one["unit"] == unit:
                    self.assertTrue(least <= one["values"][0] <= most, one)
        self.assert_drawn()

    def test_quantities_are_what_they_say(self) -> None:
        document = self.run_well("--world-size", "4", "--rounds", "3", "--warmup", "0")

        def values(**labels: object) -> list[float]:
            (one,) = self.series(document, **labels)
            self.assertEqual(len(one["values"]), 3)
            return one["values"]

        chunk = 4096 // 4 * 4
        ring = values(peer="all_reduce", variant="ring", quantity="allocated")
        self.assertTrue(all(chunk <= value <= 1.1 * chunk for value in ring), ring)
        butterfly = values(peer="butterfly", variant="butterfly", quantity="allocated")
        self.assertTrue(all(4 * 4 <= value <= 100 for value in butterfly), butterfly)
        # float32 averages are off by about 1e-8, and there are 4096 of them.
        for variant in ("ring", "all_reduce"):
            errors = values(peer="all_reduce", variant=variant, quantity="diff")
            self.assertTrue(all(1e-14 < value < 1e-10 for value in errors), errors)
        self.assertEqual(document["provenance"]["world_size"], 4)

    def test_other_worlds_have_no_published_pair(self) -> None:
        document = self.run_well("--world-size", "3", *self.tiny)
        self.assertEqual({one["labels"]["peer"] for one in document["series"]}, {"butterfly"})

    def test_launched_ranks_measure_their_own_world(self) -> None:
        document = self.run_well(
            *self.tiny, RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()
        )  # fmt: skip
        self.assertEqual({one["labels"]["world_size"] for one in document["series"]}, {1})

    def test_refusals(self) -> None:
        self.assert_unfinished(*self.tiny)
        self.assert_refused("--trace draws one world of ranks: choose it with --world-size", "--trace", "trace.json")
        self.assert_output_is_checked("--world-size", "1", *self.tiny)


class AllReduceBandwidth(ProgramTest):
    program = "all_reduce_bandwidth"
    tiny = ("--rounds", "2", "--warmup", "0", "--sizes", "4096", "65536")

    def test_measures_each_size_with_each_all_reduce(self) -> None:
        document = self.run_well(*self.tiny)
        names = ("ring", "pipelined ring", "butterfly", "all_reduce")
        found = [(one["labels"]["bytes"], one["labels"]["variant"]) for one in document["series"]]
        self.assertEqual(found, [(size, name) for size in (4096, 65536) for name in names])
        for one in document["series"]:
            self.assertEqual((one["unit"], len(one["values"])), ("s", 2))
            self.assertGreater(min(one["values"]), 0)
        self.assert_drawn()

    def test_refusals(self) -> None:
        self.assert_unfinished(*self.tiny)
        self.assert_output_is_checked(*self.tiny)


class AllReduceAlgorithms(ProgramTest):
    program = "all_reduce_algorithms"

    def test_virtual_times_are_those_of_the_formulas(self) -> None:
        network = {"alpha_ns": 7_000, "beta_ns_per_byte": 0.5}
        flags = ("--alpha-ns", 7_000, "--beta-ns-per-byte", 0.5, "--sizes", 120, 12_000)  # 2 to 6 ranks divide these
        for world in (2, 3, 5, 6):
            document = self.run_well("--world-size", world, *flags)
            self.assertEqual(len(document["series"]), 2 * len(ALGORITHMS))
            for size in (120, 12_000):
                for algorithm in ALGORITHMS:
                    (one,) = self.series(document, algorithm=algorithm, bytes=size, world_size=world)
                    expected = formula_seconds(algorithm, world, size, network)
                    self.assertAlmostEqual(one["values"][0], expected, delta=1e-12, msg=f"{algorithm}, {world} ranks")

    def test_measures_all_worlds_in_one_run(self) -> None:
        document = self.run_well("--sizes", 1 << 12, 1 << 18)
        self.assertEqual({one["labels"]["world_size"] for one in document["series"]}, {2, 3, 4, 5, 6, 7, 8, 12, 16})
        for one in document["series"]:
            labels, network = one["labels"], {"alpha_ns": 10_000, "beta_ns_per_byte": 1}
            expected = formula_seconds(labels["algorithm"], labels["world_size"], labels["bytes"], network)
            divides = labels["bytes"] // 4 % labels["world_size"] == 0
            self.assertAlmostEqual(one["values"][0], expected, delta=1e-12 if divides else 1e-3 * expected, msg=labels)
        self.assert_drawn()

    def test_refusals(self) -> None:
        self.assert_unfinished()
        tiny = ("--world-size", "2", "--sizes", "64")
        self.assert_refused("the simulated network moves CPU tensors only", *tiny, "--device", "cuda")
        self.assert_refused("this program draws no trace", *tiny, "--trace", "trace.json")
        launched = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        self.assert_refused("the simulated network needs ranks that share memory", **launched)
        self.assert_output_is_checked(*tiny)


if __name__ == "__main__":
    unittest.main()
