"""What is shown of a compiler's log, what programs lack after linking, and what was built of other contents."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from tools.grading import stages
from tools.grading.compiling import building, unresolved
from tools.grading.compiling.building import Builder, Watch
from tools.grading.compiling.compile_errors import condense
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT, LabError


def test_only_the_first_errors() -> None:
    log = "\n".join(f"{ROOT}/assignments/x.cpp:{n}:1: error: bad\n  {n} | code\n    | ^" for n in range(1, 6))
    text = condense(log)
    assert "assignments/x.cpp:3:1: error: bad\n  3 | code\n    | ^" in text
    assert "x.cpp:4" not in text
    assert "2 more errors" in text


def compiled(output: Path, code: str, *flags: str) -> Path:
    source = output.with_suffix(".cpp")
    source.write_text(code)
    subprocess.run(["c++", str(source), "-o", str(output), *flags], check=True)
    return output


def test_what_no_library_and_no_contract_has_is_missing_and_not_the_stages_fault(tmp_path: Path) -> None:
    code = """
        namespace at { int data(int); }
        namespace ddp { int make_naive_ddp(int); int forgotten(int); }
        int use() { return at::data(1) + ddp::make_naive_ddp(2) + ddp::forgotten(3); }
        """
    library = compiled(tmp_path / "libcode.so", code, "-fPIC", "-shared")
    (tmp_path / "bin").mkdir()
    link = ["-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed", f"-Wl,-rpath,{tmp_path}", str(library)]
    program = compiled(tmp_path / "bin/program", "int main() {}", *link)
    expected = [f"at::data(int), for {library}", f"ddp::forgotten(int), for {library}"]
    assert sorted(unresolved.missing(program)) == expected
    assert unresolved.missing(Path("/bin/true")) == []
    tools = mock.Mock(build_dir=str(tmp_path), cmake="/bin/true", generator="Ninja")
    with Watch(visible=False) as watch, mock.patch.object(building, "edited_note", return_value=""):
        with pytest.raises(LabError, match=r"(?s)not your stage's fault:.*at::data\(int\), for .*CXX="):
            Builder(tools)._build("common", ["program"], watch)


def test_an_edit_counts_however_old_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stages, building):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    stage, build = Stage("01_naive_ddp", "01", "naive DDP", 15), tmp_path / "build"
    source = tmp_path / "solutions" / stage.name / "x.cpp"
    header = tmp_path / "assignments" / stage.name / "x.h"
    for file in source, header, build / "grade/x":
        file.parent.mkdir(parents=True)
        file.write_text("first")
    command = {"file": str(source), "command": f"clang++ -c {source} -o x.o"}
    (build / "compile_commands.json").write_text(json.dumps([command]))

    def is_forgotten() -> bool:
        (build / "x.o").touch()
        building.forget_if_changed(build, stage, "solutions")
        return not (build / "x.o").exists()

    assert not is_forgotten()  # nobody knows, so the times decide
    building.remember(build, stage, "solutions")
    os.utime(source)
    assert not is_forgotten()
    for file in source, header, source.with_name("more.cpp"):
        file.write_text("second")
        os.utime(file, (1, 1))
        assert is_forgotten(), file.name
        building.remember(build, stage, "solutions")


def test_precompiled_headers_go_when_a_package_was_upgraded(tmp_path: Path) -> None:
    header = tmp_path / "CMakeFiles/precompiled.dir/cmake_pch.hxx.pch"
    header.parent.mkdir(parents=True)
    header.touch()
    assert not building.forget_precompiled(tmp_path, "x.cpp:1:1: error: unknown type name 'x'")
    said = "fatal error: file '/usr/include/errno.h' has been modified since the precompiled header 'h' was built"
    cmake = tmp_path / "cmake"
    cmake.write_text(f'#!/bin/sh\n[ ! -e {header} ] || {{ echo "{said}"; exit 1; }}\n')
    cmake.chmod(0o755)
    with Watch(visible=False) as watch:
        assert Builder(mock.Mock(build_dir=str(tmp_path), cmake=str(cmake)))._build("common", [], watch).ok
    assert not building.forget_precompiled(tmp_path, said)  # once is enough
