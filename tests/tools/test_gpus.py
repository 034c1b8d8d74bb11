"""Tests of what is said about GPUs, in front of a stand-in for the driver."""

from __future__ import annotations

import os
import re
import unittest
from pathlib import Path
from unittest import mock

from tests.harness.cuda_driver_test import driver
from tests.tools.setup_test import Checkout
from tools.setup import gpus, parts, toolchain
from tools.setup.toolchain import LabError

FITS, OLD = gpus.OLDEST[gpus.CUDA], (7, 0)
ELSEWHERE = "make setup DEVICE=all"


class DriverTest(unittest.TestCase):
    def install(self, **answers: object) -> None:
        """From now on the driver answers so, whoever asks."""
        self.enterContext(mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": driver(self.folder, **answers)}))


class Asked(DriverTest):
    def assert_said(self, expected: str, **answers: object) -> None:
        self.install(**answers)
        self.assertRegex(gpus.gap(gpus.ask()), expected)

    def test_what_fits_is_no_gap(self) -> None:
        self.install(gpus_there=[FITS, (12, 1)])
        found = gpus.ask()
        self.assertEqual([gpu.capability for gpu in found.gpus], [FITS, (12, 1)])
        self.assertEqual((found.gpus[1].name, found.cuda), ("Stand-in 1", (gpus.CUDA, 0)))
        self.assertEqual(gpus.gap(found), "")

    def test_no_library(self) -> None:
        with mock.patch.object(gpus, "LIBRARY", "libcuda-is-not-here.so.1"):
            self.assertRegex(gpus.gap(gpus._ask_here()), r"no NVIDIA driver \(libcuda-is-not-here.so.1: cannot open")

    def test_a_library_that_is_none(self) -> None:
        (self.folder / "libcuda.so.1").write_text("no library")
        with mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": str(self.folder)}):
            self.assertRegex(gpus.gap(gpus.ask()), "no NVIDIA driver .*libcuda.so.1: (file too|invalid ELF)")

    def test_no_gpu(self) -> None:
        self.assert_said("shows no GPU.*cuInit returned 100.*CUDA_VISIBLE_DEVICES", init=100)

    def test_gpus_that_are_hidden(self) -> None:
        self.assert_said("shows no GPU.*CUDA_VISIBLE_DEVICES may hide", gpus_there=[])

    def test_a_driver_that_does_not_start(self) -> None:
        self.assert_said("does not start.*cuInit returned 803.*restart", init=803)
        self.assert_said("cuInit returned 999.*nvidia-smi", init=999)

    def test_a_driver_that_is_too_old(self) -> None:
        self.assert_said("runs CUDA 12.8 at most, PyTorch needs 13.0. Update the driver", cuda=12080, gpus_there=[FITS])
        self.assert_said("CUDA 12.8 at most", cuda=12080, init=999)

    def test_a_newer_driver_fits(self) -> None:
        self.install(cuda=13020, gpus_there=[FITS])
        self.assertEqual(gpus.gap(gpus.ask()), "")

    def test_gpus_that_are_too_old(self) -> None:
        self.assert_said(r"capability 7.5 or newer. Too old: Stand-in 0 \(7.0\). Take a newer", gpus_there=[OLD])
        self.assert_said(r"Stand-in 1 .*Leave only .*CUDA_VISIBLE_DEVICES=0,2", gpus_there=[FITS, OLD, FITS])

    def test_a_torch_for_an_older_cuda(self) -> None:
        self.install(cuda=12080, gpus_there=[OLD])
        self.assertEqual(gpus.gap(gpus.ask(), 12), "")

    def test_a_driver_that_crashes(self) -> None:
        self.assert_said("ended the program that asked it, with status -6", crashes=True)

    def test_a_driver_that_hangs(self) -> None:
        with mock.patch.object(gpus, "PATIENCE_S", 0.5):
            self.assert_said("did not answer within 0.5 s", hangs=True)


class BeforeTheDownload(DriverTest):
    """Which parts of .venv a run needs."""

    def parts(self, device: str, has: tuple[str, ...] = (), then: bool = True, likely: bool = False) -> set[str]:
        with (
            mock.patch.dict(os.environ, {"DEVICE": device}),
            mock.patch.object(parts, "parts_there", lambda: frozenset(has)),
            mock.patch.object(gpus, "likely", lambda: likely),
        ):
            return set(parts.with_usable_gpus(parts.needed_parts(False, False, then)))

    def test_asked_for_in_vain(self) -> None:
        self.install(init=100)
        with self.assertRaisesRegex(LabError, f"(?s)DEVICE=cuda: .*shows no GPU.*{ELSEWHERE}"):
            self.parts("cuda")
        self.assertEqual(self.parts("cpu", likely=True), set())

    def test_asked_for_with_a_gpu(self) -> None:
        self.install(gpus_there=[FITS])
        self.assertEqual(self.parts("cuda"), {"cuda"})
        self.assertEqual(self.parts("", likely=True), {"cuda"})
        self.assertEqual(self.parts(""), set())

    def test_what_is_there_is_not_asked_about(self) -> None:
        self.install(init=100)
        self.assertEqual(self.parts("cuda", has=("torch", "cuda")), {"cuda"})

    def test_for_another_machine(self) -> None:
        self.install(init=100)
        self.assertEqual(self.parts("all", then=False), {"cuda"})
        self.assertEqual(self.parts("all"), set())
        with self.assertRaisesRegex(LabError, "DEVICE=gpu is not one of: cpu, cuda, all"):
            self.parts("gpu", then=False)


class SetUp(Checkout):
    def test_nothing_is_downloaded_in_vain(self) -> None:
        found = driver(self.top, init=100)
        said = self.set_up("tools.grading.grade", code=1, DEVICE="cuda", LD_LIBRARY_PATH=found)
        self.assertIn("the NVIDIA driver shows no GPU", said)
        self.assertNotIn("come over the network", said)
        self.assertFalse((self.lab / ".venv").exists())


class Pin(unittest.TestCase):
    """What is said of PyTorch before it is downloaded is true of the one that is installed."""

    def test_constants_are_those_of_torch(self) -> None:
        if not (toolchain.BUILD_DIR / "toolchain.json").exists():
            self.skipTest("skipped: the lab is not set up here")
        folder = Path(toolchain.load().libtorch)
        library = folder / "lib" / "libtorch_python.so"
        if not re.search(r"\+cu\d+$", toolchain.torch_version(str(folder))) or not library.exists():
            self.skipTest("skipped: this torch is no CUDA build of a Python's")
        self.assertEqual(toolchain.torch_version(str(folder)).partition("+cu")[2][:-1], str(gpus.CUDA))
        oldest = re.search(rb"\0sm_(\d+)(\d)( sm_\d+a?)*\0", library.read_bytes())
        self.assertEqual((int(oldest[1]), int(oldest[2])), gpus.OLDEST[gpus.CUDA])
