"""Tests of what is said about GPUs, in front of a stand-in for the driver."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.common.fake_cuda_driver import driver
from tests.tools.setup_helpers import Checkout
from tools.setup import gpus, toolchain
from tools.setup.toolchain import LabError

FITS, OLD = gpus.OLDEST[gpus.CUDA], (7, 0)
ELSEWHERE = "make setup DEVICE=all"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From now on the driver answers so, whoever asks."""
    return lambda **answers: monkeypatch.setenv("LD_LIBRARY_PATH", driver(tmp_path, **answers))


def test_what_fits_is_no_gap(install) -> None:
    install(cuda=13020, gpus_there=[FITS, (12, 1)])
    found = gpus.ask()
    assert [gpu.capability for gpu in found.gpus] == [FITS, (12, 1)]
    assert (found.gpus[1].name, found.cuda, gpus.gap(found)) == ("Stand-in 1", (13, 2), "")
    install(cuda=12080, gpus_there=[OLD])
    assert gpus.gap(gpus.ask(), cuda=12) == ""  # of a torch for an older CUDA


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"init": 100}, "shows no GPU.*cuInit returned 100.*CUDA_VISIBLE_DEVICES"),
        ({"gpus_there": []}, "shows no GPU.*CUDA_VISIBLE_DEVICES may hide"),
        ({"init": 803}, "does not start.*cuInit returned 803.*restart"),
        ({"init": 999}, "cuInit returned 999.*nvidia-smi"),
        ({"cuda": 12080, "gpus_there": [FITS]}, "runs CUDA 12.8 at most, PyTorch needs 13.0. Update the driver"),
        ({"cuda": 12080, "init": 999}, "CUDA 12.8 at most"),
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


def test_no_library_or_one_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert re.search("no NVIDIA driver .*libcuda.so.1: (file too|invalid ELF)", gpus.gap(gpus.ask()))
    monkeypatch.setattr(gpus, "LIBRARY", "libcuda-is-not-here.so.1")
    assert "no NVIDIA driver (libcuda-is-not-here.so.1: cannot open" in gpus.gap(gpus._ask_here())


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
    with pytest.raises(LabError, match="DEVICE=gpu is not one of: cpu, cuda, all"):
        needed("gpu", then=False)


class SetUp(Checkout):
    def test_nothing_is_downloaded_in_vain(self) -> None:
        found = driver(self.top, init=100)
        said = self.set_up("tools.grading.grade", code=1, DEVICE="cuda", LD_LIBRARY_PATH=found)
        self.assertIn("the NVIDIA driver shows no GPU", said)
        self.assertNotIn("come over the network", said)
        self.assertFalse((self.lab / ".venv").exists())


def test_what_is_said_of_pytorch_before_its_download_is_true_of_the_installed_one() -> None:
    if not (toolchain.BUILD_DIR / "toolchain.json").exists():
        pytest.skip("skipped: the lab is not set up here")
    folder = Path(toolchain.load().libtorch)
    library = folder / "lib" / "libtorch_python.so"
    made_for = re.search(r"\+cu(\d+)\d$", toolchain.torch_version(str(folder)))
    if not made_for or not library.exists():
        pytest.skip("skipped: this torch is no CUDA build of a Python's")
    oldest = re.search(rb"\0sm_(\d+)(\d)( sm_\d+a?)*\0", library.read_bytes())
    assert (int(made_for[1]), int(oldest[1]), int(oldest[2])) == (gpus.CUDA, *gpus.OLDEST[gpus.CUDA])
