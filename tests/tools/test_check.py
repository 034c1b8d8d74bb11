"""Tests of `make check` itself: would it notice?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.tools.checking_test import context, report
from tests.tools.setup_test import script
from tools.checking import check, linting, own_tests, trials
from tools.checking.context import Outcome
from tools.grading.running import runner
from tools.grading.stages import BadChoice
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

# A lab in which nothing is compiled: its own trials are done by the lab's, and end as the file `planted` says.
PROJECT = f"""\
cmake_minimum_required(VERSION 3.25)
project(lab LANGUAGES NONE)
enable_testing()
set(DDP_LAB_TRIALS "{sys.executable}" trial.py)
add_custom_target(built ALL COMMAND sh -c "! grep broken planted" WORKING_DIRECTORY "${{CMAKE_SOURCE_DIR}}")
include(cmake/Checks.cmake)
"""
TRIAL = f"""\
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.tools.checking_test import context
from tools.checking.context import Outcome
from tools.checking.trials import Kind, PASSED, do
def work(context, *of):
    with open("done", "a") as done:
        print(sys.argv[2], file=done)
    name, _, how = Path("planted").read_text().partition(" ")
    if name != sys.argv[2]: return Outcome(1)
    if how == "hangs": time.sleep(1000)
    if how == "dies": sys.exit(1)
    if how == "once": Path("planted").write_text("nothing")
    return {{"skips": Outcome(skipped=["no GPU"]), "idle": Outcome()}}.get(how, Outcome.of("what was planted"))
if sys.argv[1] == "list":
    Path(sys.argv[2], PASSED).mkdir(parents=True, exist_ok=True)
    Path(sys.argv[2], "check/trials.cmake").write_text(Path("trials.txt").read_text())
elif sys.argv[1] == "prepare":
    Path("build/check/prepared").touch() if "prepare" not in Path("planted").read_text() else sys.exit("no library")
else:
    kinds = dict.fromkeys(("format", "mutants", "gallery"), Kind(work, seconds=1))
    sys.exit(do(context(build_dir="build"), sys.argv[2], kinds))
"""
SOURCE = "${CMAKE_SOURCE_DIR}/source"
TRIALS = f"""\
ddp_lab_trial(format LABELS format check all SECONDS 1 NEEDS {SOURCE})
ddp_lab_trial(mutants.x LABELS mutants check SECONDS 1 NEEDS {SOURCE}
              PREPARED ${{CMAKE_BINARY_DIR}}/check/prepared FROM {SOURCE})
ddp_lab_trial(gallery LABELS gallery check all SECONDS 1)
"""
SUCCESS = "5 passed, 0 failed"


class Lab:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        (folder / "cmake").symlink_to(ROOT / "cmake")
        shutil.copy(ROOT / "CMakePresets.json", folder)
        for name, text in {
            "CMakeLists.txt": PROJECT, "trial.py": TRIAL, "trials.txt": TRIALS, "planted": "nothing", "source": ""
        }.items():  # fmt: skip
            (folder / name).write_text(text)
        self.tools = mock.Mock(cmake=toolchain.load().cmake, build_dir=str(folder / "build"), python="")
        monkeypatch.chdir(folder)
        monkeypatch.setattr(own_tests, "run_pytest", lambda *_: self.pytest)
        monkeypatch.setenv("SEED", "7"), monkeypatch.setenv("ALL", "")
        subprocess.run([self.tools.cmake, "-GNinja", "-Bbuild"], check=True, capture_output=True)
        self.pytest = Outcome(2)

    def check(self, *only: str, fresh: bool = False, everything: bool = False) -> tuple[int, str]:
        (self.folder / "done").write_text("")
        code = check.check(self.tools, Namespace(only=list(only), seed=7, all=everything, fresh=fresh))
        return code, self._capsys.readouterr().out

    def done(self) -> list[str]:
        return sorted((self.folder / "done").read_text().split())


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    return Lab(tmp_path, monkeypatch, capsys)


def test_what_passed_is_done_again_only_if_something_changed(lab: Lab) -> None:
    code, said = lab.check()
    assert (code, said.splitlines()[-1], lab.done()) == (0, SUCCESS, ["format", "gallery", "mutants.x"])
    assert (lab.check()[0], lab.done()) == (0, ["gallery"])  # it hangs on more than Ninja knows
    (lab.folder / "source").write_text("changed")
    assert (lab.check("format")[0], lab.done()) == (0, ["format"])
    assert (lab.check(fresh=True)[0], lab.done()) == (0, ["format", "gallery", "mutants.x"])
    assert (lab.check(everything=True)[0], lab.done()) == (0, ["gallery"])


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("format fails", "check.format\n    what was planted"),
        ("gallery fails", "check.gallery\n    what was planted"),
        ("mutants.x fails", "check.mutants.x\n    what was planted"),
        ("mutants.x prepare", "check.mutants.x\n"),
        ("format hangs", "format: it had not ended after 1 s"),
        ("gallery hangs", "gallery: it had not ended after 1 s"),
        ("gallery dies", "check.gallery"),
        ("format idle", "format: nothing was looked at"),
        ("format once", "failed when Ninja did them, and passed again: check/passed/format"),
        ("broken", "The build"),
    ],
)
def test_each_failure_fails_the_whole(lab: Lab, planted: str, said: str) -> None:
    (lab.folder / "planted").write_text(planted)
    code, text = lab.check()
    assert (code, said in text, text.splitlines()[-1].split(", ")[1]) == (1, True, "1 failed"), text
    (lab.folder / "planted").write_text("nothing")
    assert lab.check()[0] == 0


def test_failures_of_pytest_and_trials_without_a_verdict_fail_the_whole(lab: Lab) -> None:
    lab.pytest = Outcome(1, ["test_it\n    line 7"])
    code, said = lab.check()
    assert (code, said.splitlines()[-1]) == (1, "4 passed, 1 failed")
    assert "    line 7" in said and "SEED=7" in said
    lab.pytest = Outcome(2)
    with mock.patch.object(check, "listed", return_value=["check.format", "check.gone"]):
        code, said = lab.check()
    assert (code, "1 of 2 trials have no verdict: check.gone" in said) == (1, True)
    (lab.folder / "CMakePresets.json").write_text("{}")
    assert lab.check()[0] == 1


def test_what_is_skipped_is_shown_and_not_passed(lab: Lab) -> None:
    (lab.folder / "planted").write_text("format skips")
    code, said = lab.check()
    assert (code, "  skipped: no GPU\n" in said, "1 skipped, which is not passed." in said) == (0, True, True)
    assert (lab.check("format")[0], lab.done()) == (0, ["format", "format"])


def test_a_verdict_that_is_older_than_what_it_hangs_on_is_reached_anew_by_ctest_alone(lab: Lab) -> None:
    ctest = [str(Path(lab.tools.cmake).with_name("ctest")), "--test-dir", "build", "-R", "format"]
    for planted, code in (("nothing", 0), ("format fails", 8)):
        assert subprocess.run(ctest, capture_output=True).returncode == 0
        (lab.folder / "planted").write_text(planted)
        (lab.folder / "source").write_text(planted)
        assert subprocess.run(ctest, capture_output=True).returncode == code


def test_each_python_test_is_one_of_ctest_too(lab: Lab) -> None:
    (lab.folder / "build/toolchain.json").write_text(f'{{"toolchain": {{"figure_python": "{sys.executable}"}}}}')
    (lab.folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    test = lab.folder / "tests/test_it.py"
    test.parent.mkdir()
    ctest = [str(Path(lab.tools.cmake).with_name("ctest")), "--test-dir", "build", "-L", "python"]
    for body, said in (
        ("def test_a(): pass\ndef test_b(): 1 / 0", "tests/test_it.py::test_b (Failed)"),
        ("import pytest\ndef test_c(): pytest.skip('no GPU')", "tests/test_it.py::test_c (Skipped)"),
        ("1 / 0", "python.collection (Failed)"),
    ):
        test.write_text(body)
        assert said in subprocess.run(ctest, capture_output=True, text=True).stdout


@pytest.mark.parametrize("kind", trials.KINDS)
def test_a_failure_of_each_kind_leaves_no_verdict(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = trials.KINDS[kind]
    assert set(known.labels) & {trials.CHECK, trials.ALL, trials.APART}
    where = context(build_dir=str(tmp_path))
    passed = tmp_path / trials.PASSED / f"{kind}.it"
    passed.parent.mkdir(parents=True)
    for found in (Outcome(3, ["planted"]), Outcome(), LabError("planted"), OSError("planted")):
        passed.write_text("from before")
        planted = replace(known, work=mock.Mock(side_effect=[found]))
        assert (trials.do(where, f"{kind}.it", {kind: planted}), passed.exists()) == (1, False)
    assert capsys.readouterr().out.count("planted") == 3
    good = replace(known, work=mock.Mock(return_value=Outcome(1)))
    assert (trials.do(where, f"{kind}.it", {kind: good}), passed.exists()) == (0, True)
    if not known.prepare:
        assert trials.prepare(where, f"{kind}.it") == 1
        assert capsys.readouterr().out == f"{kind}.it: nothing is prepared for trials of this kind"


def test_each_kind_is_among_the_tests_of_ctest(tmp_path: Path) -> None:
    calls = list(trials.described(tmp_path))
    names = [call.partition("(")[2].split()[0] for call in calls]
    assert {name.split(".")[0] for name in names} == set(trials.KINDS)
    assert len(names) == len(set(names)) > 300


def test_what_takes_long_waits_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, only in (("--sanitize=undefined", ["address"]), ("--only=machines format", ["machines", "format"])):
        monkeypatch.setattr("sys.argv", ["make check", words])
        assert check.parse_arguments().only == only
    monkeypatch.setattr("sys.argv", ["make check", "--only=machine"])
    with pytest.raises(BadChoice, match="ONLY=machine is not one of: machines"):
        check.parse_arguments()
    assert trials.KINDS["machines"].labels == (trials.APART,)
    for kind in check.SANITIZERS.values():
        assert trials.KINDS[kind].labels == (trials.LONG, trials.ALL)


CLASHING_COMPILER = f"""\
#!{sys.executable}
import pathlib, sys
unit = pathlib.Path(sys.argv[-1]).read_text()
if "/a.cpp" in unit and "/b.cpp" in unit:
    print("/b.cpp:3:1: error: redefinition of 'kHalf'")
"""


@pytest.fixture
def linter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> linting.Linter:
    monkeypatch.setattr(linting, "tool", lambda *_: "true")
    compiler = script(tmp_path / "cxx", CLASHING_COMPILER)
    return linting.Linter(context(build_dir=str(tmp_path), cxx=compiler))


def test_files_that_do_not_compile_together_are_looked_at_apart(linter: linting.Linter) -> None:
    a, b, c = Path("/a.cpp"), Path("/b.cpp"), Path("/c.cpp")
    for files, together in (([a, b, c], [a, c]), ([b, c], [b, c]), ([b], [b])):
        assert linter._together((), files)[1] == together


def test_a_sample_has_what_was_changed() -> None:
    files = {Path(f"/{number}.cpp"): () for number in range(99)}
    chosen = linting.sampled(files, {Path("/7.cpp"), Path("/README.md")}, seed=1)
    assert len(chosen) == 1 + linting.SAMPLE and Path("/7.cpp") in chosen


def test_a_missing_tool_is_a_failure_that_says_what_to_do(tmp_path: Path) -> None:
    python, clang_tidy = tmp_path / "python", tmp_path / "clang-tidy"
    install = rf"{python} -m pip install clang-tidy==\d"
    with pytest.raises(LabError, match=f"There is no {clang_tidy}.* {install}"):
        linting.check_lint(context(figure_python=str(python)))
    script(clang_tidy, "#!/bin/sh\necho LLVM version 9.0.1\n")
    with pytest.raises(LabError, match=f"{clang_tidy} is version 9.0.1.* {install}"):
        linting.check_lint(context(figure_python=str(python)))


def test_the_linter_reads_as_text_what_either_compiler_precompiles(linter: linting.Linter, tmp_path: Path) -> None:
    header = tmp_path / "pch_tests.dir/cmake_pch.hxx"
    header.parent.mkdir()
    header.write_text("int precompiled;\n")
    clang = ["-Winvalid-pch", "-Xclang", "-include-pch", "-Xclang", f"{header}.pch"]
    clang += ["-Xclang", "-include", "-Xclang", str(header)]
    for flags in (clang, ["-Winvalid-pch", "-include", str(header)]):
        *others, copy, last = linter._as_text((*flags, "-O2"))
        assert [*others, last] == ["-Winvalid-pch", "-include", "-O2"]
        assert Path(copy).read_text() == "int precompiled;\n"
        assert Path(copy).parent != header.parent, "beside it is what the compiler made"


def test_what_pytest_found_is_counted(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -m 'not slow'\n")
    mixed = "def test_a(): pass\ndef test_b(): assert 'why' == ''\n"
    mixed += "@pytest.mark.skip('no GPU')\ndef test_d(): pass\n@pytest.mark.slow\ndef test_e(): 1 / 0\n"
    for body, passed, said, skipped in (
        (mixed, 1, "why", ["pytest: test_it.test_d: no GPU"]),
        ("", 0, "pytest ended with code 5", []),
        ("def test_a():\n  import os; os._exit(0)\n", 0, "crashed", []),
        ("@pytest.mark.skip('no GPU')\ndef test_d(): pass\n", 0, "none has passed", ["pytest: test_it.test_d: no GPU"]),
    ):
        (tmp_path / "test_it.py").write_text(f"import pytest\n{body}")
        found = own_tests.run_pytest(context(build_dir=str(tmp_path), figure_python=sys.executable), tmp_path)
        assert (found.passed, found.skipped) == (passed, skipped)
        assert said in "".join(found.failures)


SHARD = """\
#!/bin/sh
cat > "${1#--gtest_output=xml:}" <<END
<testsuites><testsuite><testcase classname="A" name="Passes" status="run"/>
<testcase classname="A" name="Skips" status="run"><skipped message="a.cpp:3&#x0A;no GPU"/></testcase>
<testcase classname="A" name="Fails" status="run"><skipped message="late"/><failure>a.cpp:4\nwhy</failure></testcase>
<testcase classname="A" name="DISABLED_Never" status="notrun"/></testsuite></testsuites>
END
exit 1
"""


def test_what_googletest_found_is_counted(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for text, passed, skipped, said in (
        (SHARD, 1, ["tests: A.Skips: no GPU"], "tests: A.Fails\n    a.cpp:4\n    why\n"),
        ("#!/bin/sh\nexit 139", 0, [], "tests ended with code 139"),
        ("#!/bin/sh\nexit 0", 0, [], "tests ended with code 0"),
    ):
        script(tmp_path / "bin/tests", text)
        found = own_tests.run_shard(context(build_dir=str(tmp_path)), "tests", 0)
        assert (found.passed, found.skipped, len(found.failures)) == (passed, skipped, 1)
        assert found.failures[0].startswith(said)


def test_with_more_cores_than_tests_a_part_has_none_and_passes(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/tests", '#!/bin/sh\necho "<testsuites/>" > "${1#--gtest_output=xml:}"\n')
    found = own_tests.run_shard(context(build_dir=str(tmp_path)), "tests", 0)
    assert (found.passed, found.skipped, found.failures) == (0, [], [])


def test_fresh_memory_of_a_test_program_is_recognisable(tmp_path: Path) -> None:
    ask = "import ctypes; new = ctypes.CDLL(None).malloc; new.restype = ctypes.c_void_p\n"
    ask += "print(ctypes.string_at(new(64), 64).hex(), __import__('os').environ.get('MORE'))"
    program, graded = script(tmp_path / "tests", f"#!{sys.executable}\n{ask}"), report()
    runner.run_stage(program, Path("x.so"), graded, runner.RunOptions(1, environment={"MORE": "y"}), mock.Mock())
    assert "fe" * 64 + " y" in graded.output
