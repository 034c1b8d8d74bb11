"""What tests of set-up share: a checkout and a PATH of their own.

Nothing real is installed or configured: cmake, g++ and apt-get are small scripts that record their arguments,
and torch is a folder of empty files.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CMAKE = """\
#!/bin/sh
[ "$1" = --version ] && { echo "cmake version ${FAKE_CMAKE_VERSION:-3.25.1}"; exit; }
echo "$@" >> "$FAKE_LOG"
[ -z "$FAKE_CMAKE_FIFO" ] || { echo $$ > "$FAKE_CMAKE_FIFO"; exec sleep 1000; }
[ -z "$FAKE_CMAKE_FAILS" ] || { echo "CMake Error at CMakeLists.txt:7:"; echo "  no such thing"; exit 1; }
cat > "$4/CMakeCache.txt" <<END
CMAKE_HOME_DIRECTORY:INTERNAL=$2
CMAKE_GENERATOR:INTERNAL=$6
CMAKE_CXX_COMPILER:STRING=${7#*=}
END
touch "$4/build.ninja"
echo [] > "$4/compile_commands.json"
echo "-- CUDA: off, no toolkit"
"""


SYSTEM_TOOLS = ("sh", "env", "cat", "touch", "sleep", "make", "awk", "uname", "git", "rm")


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def fake_torch(folder: Path, version: str = "2.11.0+cpu") -> Path:
    for part in ("include/ATen/ATen.h", "lib/libtorch_cpu.so", "lib/libc10.so", "__init__.py"):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).touch()
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


class Checkout(unittest.TestCase):
    """A copy of the files that set-up reads, and a PATH that contains only what a test puts there."""

    @classmethod
    def setUpClass(cls) -> None:
        """Behind "&" a shell may ignore interrupts, and what the tests start would, too."""
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def setUp(self) -> None:
        self.top = self.folder
        self.lab, self.bin, self.log = self.top / "lab", self.top / "bin", self.top / "asked"
        shutil.copytree(ROOT / "tools", self.lab / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        (self.lab / "cmake").mkdir()
        for name in ("Makefile", "instructor.mk", "requirements.txt", "cmake/libraries.txt"):
            shutil.copy(ROOT / name, self.lab / name)
        for name in ("gtest/gtest.h", "nlohmann/json.hpp", "CLI/CLI.hpp"):
            (self.top / "include" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.top / "include" / name).touch()
        self.bin.mkdir()
        for name in SYSTEM_TOOLS:
            if path := shutil.which(name):
                (self.bin / name).symlink_to(path)
        script(self.bin / "cmake", CMAKE)
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 19.1.7'\n")
        script(self.bin / "ninja", "#!/bin/sh\necho 1.11.1\n")
        script(self.bin / "addr2line", "#!/bin/sh\necho 2.40\n")
        script(self.bin / "apt-get", '#!/bin/sh\necho apt-get "$@" >> "$FAKE_LOG"\necho "E: no network"; exit 100\n')
        script(self.bin / "python3", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        self.python = self.make_python("python-with-torch")
        self.environment = {"PATH": str(self.bin), "HOME": str(self.top), "FAKE_LOG": str(self.log)}
        self.environment["CMAKE_PREFIX_PATH"] = str(self.top)

    def make_python(self, name: str, version: str = "2.11.0+cpu") -> str:
        """A Python whose only package is a fake torch; no version: no torch."""
        packages = self.top / f"{name}-packages"
        if version:
            fake_torch(packages / "torch", version)
        text = f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n'
        return script(self.top / name, text)

    def start(self, *argv: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            argv, cwd=self.lab, env={**self.environment, **environment}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run_tool(self, *argv: str, code: int = 0, **environment: str) -> str:
        process = self.start(*argv, **environment)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, code, output)
        self.assertNotIn("Traceback", output)
        return output

    def set_up(self, *flags: str, code: int = 0, **environment: str) -> str:
        return self.run_tool("python3", "-m", "tools.setup.setup", *flags, code=code, **environment)

    def asked(self, program: str = "-S") -> list[str]:
        """The arguments of the fake programs: cmake's lines begin with -S, apt-get's with its name."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(program)]
