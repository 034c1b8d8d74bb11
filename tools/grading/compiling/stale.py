"""What was built of other contents than a stage has now, although it is newer: a file that was restored with its old
time, or a clock that was set back. The build looks at times alone, and would keep it.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from tools.grading.compile_commands import object_of
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT, LabError

_UPGRADED = "has been modified since the precompiled header"


def forget_if_changed(build_dir: Path, stage: Stage, impl: str) -> None:
    """Removes the objects of a stage whose contents are not those of its last build."""
    note = _note(build_dir, stage, impl)
    if note.exists() and note.read_text() != digest(stage, impl):
        for source in stage.sources(impl):
            with contextlib.suppress(LabError, OSError):  # one that is new has none
                object_of(build_dir, source).unlink()


def forget_precompiled(build_dir: Path, said: str) -> bool:
    """Removes the precompiled headers if clang said that a header they are made of has changed: a package was upgraded,
    whose files are older than the build. Whether there were any."""
    stale = list(build_dir.glob("CMakeFiles/pch_*.dir/*.pch")) if _UPGRADED in said else []
    for file in stale:
        file.unlink()
    return bool(stale)


def remember(build_dir: Path, stage: Stage, impl: str) -> None:
    """To be called when the stage is built."""
    with contextlib.suppress(OSError):  # a full disk; the times are nearly always right
        _note(build_dir, stage, impl).write_text(digest(stage, impl))


def _note(build_dir: Path, stage: Stage, impl: str) -> Path:
    return build_dir / "grade" / f"{impl}.{stage.name}.sha256"


def digest(stage: Stage, impl: str) -> str:
    """Of what a stage consists of."""
    headers = [header for room in {impl, "assignments"} for header in (ROOT / room / stage.name).glob("*.h")]
    found = hashlib.sha256()
    for path in [*stage.sources(impl), *sorted(headers)]:
        found.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
