"""What set-up brings: the checkout's own Python environment, and what a GPU needs, before a stand-in for the driver."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.harness.cuda_driver_test import driver
from tests.tools.setup_test import Checkout, fake_torch, script
from tools.checking.context import Context
from tools.setup import gpus, toolchain, virtual_environment
from tools.setup.toolchain import LabError


class Environment(Checkout):
    """_run stands in for python3 -m venv and pip; everything else is real."""

    def setUp(self) -> None:
        super().setUp()
        self.venv, self.pip = self.lab / ".venv", []
        self.pip_output: list[str] | None = None  # None: it works
        marker = self.venv / ".ddp-lab"
        for patch in (
            mock.patch.multiple(virtual_environment, VENV=self.venv, MARKER=marker, LIBRARIES=self.venv / "libraries"),
            mock.patch.object(virtual_environment, "NEEDED_BYTES", {False: 1, True: 1}),
            mock.patch.object(virtual_environment, "active_pythons", lambda: [sys.executable]),
            mock.patch.object(virtual_environment.progress, "run", self._run),
        ):
            self.enterContext(patch)

    def _run(self, argv: list[str], *rest) -> tuple[int, list[str]]:
        if "venv" in argv:
            (self.venv / "bin").mkdir()
            packages = self.venv / "lib" / "python3" / "site-packages"
            packages.mkdir(parents=True)
            text = f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n'
            script(self.venv / "bin" / "python", text)
            return 0, []
        words = [word for word in argv[4:] if not word.startswith("--")]
        self.pip.append(" ".join(words))
        if self.pip_output is None and any(word.startswith("torch==") for word in words):
            packages = self.venv / "lib" / "python3" / "site-packages"
            fake_torch(packages / "torch")
            needs = "filelock\nRequires-Dist: cuda-toolkit[cublas,cudart,cupti]==13.0.2; platform_system == 'Linux'\n"
            (packages / "torch-2.11.0.dist-info").mkdir(exist_ok=True)
            (packages / "torch-2.11.0.dist-info" / "METADATA").write_text(f"Requires-Dist: {needs}")
        return int(self.pip_output is not None), self.pip_output or []

    def provide(self, *parts: str) -> None:
        virtual_environment.provide(self.top / "log", frozenset({"torch", *parts}))


class VirtualEnvironment(Environment):
    def test_made_once_and_parts_come_when_they_are_needed(self) -> None:
        self.provide()
        self.provide()
        assert self.pip == [f"torch=={toolchain.pinned('torch')}"]
        assert virtual_environment.megabytes_to_come(frozenset({"torch", "figures"})) == 70
        self.provide("figures")
        self.provide("figures")
        assert len(self.pip) == 2 and f"matplotlib=={toolchain.pinned('matplotlib')}" in self.pip[1]
        assert virtual_environment.parts_there() == {"torch", "figures"}
        (self.venv / "kept").touch()
        with mock.patch.object(virtual_environment, "requirements_hash", lambda: "other"):
            self.provide()
        assert len(self.pip) == 3 and (self.venv / "kept").exists(), "what was installed is brought up to date"

    def test_libraries_go_by_what_the_loader_misses(self) -> None:
        real, said = subprocess.run, ""

        def run(argv, *rest, **options):
            return subprocess.CompletedProcess(argv, 0, said, "") if argv[0] == "ldd" else real(argv, *rest, **options)

        with mock.patch.object(virtual_environment.subprocess, "run", run):
            self.provide()
            assert len(self.pip) == 1
            shutil.rmtree(self.venv)
            said = "\tlibcudart.so.13 => not found\n\tlibc10.so => /x/libc10.so\n\tlibcupti.so.13 => not found\n"
            self.provide()
            assert self.pip[-1] == "cuda-toolkit[cudart,cupti]==13.0.2"

    @pytest.mark.slow
    def test_half_made_or_broken_is_made_anew(self) -> None:
        for reason, said in (
            ("ERROR: broken wheel", "broken wheel"),
            ("Temporary failure in name resolution", "no network.*PYTHON=.*2.11 to 2.15.*LIBTORCH="),
            ("ERROR: [Errno 28] No space left on device", "disk is full"),
        ):
            self.pip_output = ["WARNING: Retrying", reason]
            self.assertRaisesRegex(toolchain.LabError, f"(?s){said}", self.provide)
        (self.venv / "left-over").touch()
        self.pip_output = None
        self.provide()
        assert not (self.venv / "left-over").exists()
        (self.venv / "bin" / "python").unlink()
        self.provide()
        assert self.pip[-2:] == [f"torch=={toolchain.pinned('torch')}"] * 2

    def test_somebody_elses_is_never_touched_and_a_full_disk_never_begun(self) -> None:
        with mock.patch.object(virtual_environment, "NEEDED_BYTES", {False: 1 << 60, True: 1 << 60}):
            self.assertRaisesRegex(toolchain.LabError, "GB free", self.provide)
        (self.venv / "bin").mkdir(parents=True)
        self.assertRaisesRegex(toolchain.LabError, "was not made by the lab", self.provide)
        assert self.pip == []


class WhatTheSystemLacks(Environment):
    def test_comes_into_the_environment(self) -> None:
        gaps = {
            "cmake": lambda: (self.bin / "cmake").write_text("#!/bin/sh\necho cmake version 3.18.4\n"),
            "ninja": lambda: (self.bin / "ninja").unlink(),
            "headers": lambda: shutil.rmtree(self.top / "include" / "CLI"),
        }
        here = lambda path: str(path).startswith(str(self.top)) and Path(path).exists()  # noqa: E731
        with mock.patch.dict("os.environ", self.environment), mock.patch("os.path.exists", here):
            self.assertEqual(virtual_environment.system_gaps(), set())
            for number, make_gap in enumerate(gaps.values(), start=1):
                make_gap()
                self.assertEqual(virtual_environment.system_gaps(), set(list(gaps)[:number]))
        virtual_environment.provide(self.top / "log", frozenset({"cmake", "ninja"}))
        self.assertEqual(self.pip, [f"{name}=={toolchain.pinned(name)}" for name in ("cmake", "ninja")])


def test_pins_are_read() -> None:
    assert (toolchain.wanted_torch(), toolchain.pinned("torch")) == ("2.11 to 2.15", "2.15.0")
    cmake = (toolchain.ROOT / "CMakeLists.txt").read_text()
    assert f"find_package(Libtorch {toolchain.OLDEST_TORCH} " in cmake
    with pytest.raises(toolchain.LabError):
        toolchain.pinned("no-such-package")


FITS, OLD = gpus.OLDEST[gpus.CUDA], (7, 0)
ELSEWHERE = "make setup DEVICE=all"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From now on the driver answers so, whoever asks."""
    return lambda **answers: monkeypatch.setenv("LD_LIBRARY_PATH", driver(tmp_path, **answers))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"init": 100}, "shows no GPU.*cuInit returned 100.*CUDA_VISIBLE_DEVICES"),
        ({"init": 999}, "cuInit returned 999.*nvidia-smi"),
        ({"cuda": 12080, "gpus_there": [FITS]}, "runs CUDA 12.8 at most, PyTorch needs 13.0. Update the driver"),
        ({"gpus_there": [OLD]}, r"capability 7.5 or newer. Too old: Stand-in 0 \(7.0\). Take a newer"),
        ({"gpus_there": [FITS, OLD, FITS]}, "Stand-in 1 .*Leave only .*CUDA_VISIBLE_DEVICES=0,2"),
        ({"crashes": True}, "ended the program that asked it, with status -6"),
        ({"hangs": True}, "did not answer within 2 s"),
    ],
)
def test_a_gap_is_said_with_what_to_do(answers: dict, said: str, install, monkeypatch: pytest.MonkeyPatch) -> None:
    if "hangs" in answers:
        monkeypatch.setattr(gpus, "PATIENCE_S", 2)
    install(**answers)
    assert re.search(said, gpus.gap(gpus.ask()))


def test_which_parts_of_the_environment_a_run_needs(install, monkeypatch: pytest.MonkeyPatch) -> None:
    def needed(device: str, has: tuple[str, ...] = (), then: bool = True, likely: bool = False) -> set[str]:
        monkeypatch.setenv("DEVICE", device)
        monkeypatch.setattr(gpus, "parts_there", lambda: frozenset(has))
        monkeypatch.setattr(gpus, "likely", lambda: likely)
        return set(gpus.with_usable_gpus(gpus.needed_parts(False, False, then)))

    install(gpus_there=[FITS])
    assert needed("cuda") == needed("", likely=True) == {"cuda"}
    assert needed("") == set()
    install(init=100)
    with pytest.raises(LabError, match=f"(?s)DEVICE=cuda: .*shows no GPU.*{ELSEWHERE}"):
        needed("cuda")
    assert needed("cpu", likely=True) == set()
    assert needed("cuda", has=("torch", "cuda")) == {"cuda"}, "nobody asks about what is there"
    assert needed("all", then=False) == {"cuda"}, "for another machine"
    assert needed("all") == set()


class SetUp(Checkout):
    def test_nothing_is_downloaded_in_vain(self) -> None:
        found = driver(self.top, init=100)
        said = self.set_up("tools.grading.grade", code=1, DEVICE="cuda", LD_LIBRARY_PATH=found)
        self.assertIn("the NVIDIA driver shows no GPU", said)
        self.assertNotIn("come over the network", said)
        self.assertFalse((self.lab / ".venv").exists())


def test_what_is_said_of_pytorch_before_its_download_is_true_of_the_installed_one(context: Context) -> None:
    folder = Path(context.toolchain.libtorch)
    library, made_for = (
        folder / "lib/libtorch_python.so",
        re.search(r"\+cu(\d+)\d$", toolchain.torch_version(str(folder))),
    )
    if not made_for or not library.exists():
        pytest.skip("skipped: this torch is no CUDA build of a Python's")
    oldest = re.search(rb"\0sm_(\d+)(\d)( sm_\d+a?)*\0", library.read_bytes())
    assert (int(made_for[1]), int(oldest[1]), int(oldest[2])) == (gpus.CUDA, *gpus.OLDEST[gpus.CUDA])
