"""Which parts of the environment a run needs, by what nvidia-smi says of GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.setup import cuda
from tools.setup.toolchain import LabError

GPU = "NVIDIA H200, 9.0, 580.95.05"
Smi = Callable[[str], None]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """From now on nvidia-smi does this, whoever asks."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "nvidia-smi"

    def does(what: str) -> None:
        program.write_text(f"#!/bin/sh\n{what}\n")
        program.chmod(0o755)

    return does


def test_gpus_and_why_there_are_none(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(f"echo '{GPU}'; echo '{GPU}'")
    assert cuda.gpus() == ([GPU, GPU], "")
    smi("echo No devices were found; exit 6")
    assert cuda.gpus() == ([], "No devices were found")
    smi("exit 9")
    assert cuda.gpus() == ([], "nvidia-smi shows no GPU")
    monkeypatch.setenv("PATH", "")
    assert "there is no NVIDIA driver" in cuda.gpus()[1]


def test_which_parts_of_the_environment_a_run_needs(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    def needed(device: str, has: tuple[str, ...] = (), then: bool = True) -> set[str]:
        monkeypatch.setenv("DEVICE", device)
        monkeypatch.setattr(cuda, "parts_there", lambda: frozenset(has))
        return set(cuda.with_usable_gpus(cuda.needed_parts(False, False, then)))

    smi(f"echo '{GPU}'")
    assert needed("cuda") == needed("") == {"cuda"}
    smi("echo No devices were found; exit 6")
    assert needed("") == needed("cpu") == set()
    with pytest.raises(LabError, match="(?s)DEVICE=cuda: No devices were found.*make setup DEVICE=all"):
        needed("cuda")
    assert needed("cuda", has=("torch", "cuda")) == {"cuda"}, "nobody asks about what is there"
    assert needed("all", then=False) == {"cuda"}, "for another machine"
    assert needed("all") == set()
    with pytest.raises(LabError, match="DEVICE=gpu is not one of: cpu, cuda, all"):
        needed("gpu", then=False)
