"""Strangers' code, with UNTRUSTED=1: what a stage may use, on small libraries made by the real compiler, and how the
grader runs one that got past that look. What real ranks may do is in test_attacks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lab.marks import each_stage_built
from tests.tools.conftest import ALL_PASS, OTHER, STAGE, Lab, processes_in, require_jail, wait_for
from tools.grading.sandbox.sandbox import Sandbox
from tools.grading.sandbox.untrusted import objections, qualified_name
from tools.grading.stages import IMPLEMENTATIONS, Stage
from tools.setup.toolchain import ROOT

CXX = shutil.which("clang++") or shutil.which("c++") or shutil.which("g++")

# By the word that the objection has to name.
REFUSED = {
    "dlopen": '#include <dlfcn.h>\nvoid* f() { return dlopen("solution.so", 2); }',
    "kill": "#include <csignal>\nvoid f() { kill(1, 9); }",
    "fork": "#include <unistd.h>\nint f() { return fork(); }",
    "system": '#include <cstdlib>\nint f() { return std::system("id"); }',
    "mprotect": "#include <sys/mman.h>\nint f(void* p) { return mprotect(p, 4096, 7); }",
    "fopen": '#include <cstdio>\nvoid* f() { return fopen("/proc/self/mem", "w"); }',
    "ofstream": '#include <fstream>\nvoid f() { std::ofstream("results.json") << 1; }',
    "std::filesystem": '#include <filesystem>\nvoid f() { std::filesystem::remove("results.json"); }',
    "c10d::Reducer": "namespace c10d { struct Reducer { void run(); }; }\nvoid f(c10d::Reducer& r) { r.run(); }",
    "c10d::compute_bucket": "namespace c10d { void compute_bucket_assignment_by_size(); }\n"
    "void f() { c10d::compute_bucket_assignment_by_size(); }",
    "ddp::testing": "namespace ddp::testing { void pass(); }\nvoid f() { ddp::testing::pass(); }",
    "at::clearCallbacks": "namespace at { void clearCallbacks(); }\nvoid f() { at::clearCallbacks(); }",
}
# What hides the word from a reader of the source.
HIDDEN = {
    "dlopen": '#include <dlfcn.h>\n#define GLUE(a, b) a##b\nvoid* f() { return GLUE(dl, open)("x", 2); }',
    "x([": 'extern "C" { static int f() __attribute__((weakref("x(["))); }\nint (*volatile kept)() = f;',
}
ALLOWED = {
    "threads": "#include <mutex>\n#include <thread>\nstd::mutex m; void f() { std::thread([] { m.lock(); }).join(); }",
    "printing": '#include <cstdio>\n#include <iostream>\nvoid f() { std::printf("%d", 1); std::cerr << 1; }',
    "atomics that wait": "#include <atomic>\nstd::atomic<int> a; void f() { a.wait(0); a.notify_all(); }",
    "casts that ask": "struct A { virtual ~A() {} };\nstruct B : A {};\nbool f(A* a) { return dynamic_cast<B*>(a); }",
    "texts that are thrown": 'void f() { throw "text"; }',
    "numbers in texts": "#include <string>\nint f(const std::string& text) { return std::stoi(text); }",
    "functions of the lab": "namespace ddp { void broadcast(int); }\nvoid f() { ddp::broadcast(1); }",
    "libtorch": "namespace at { struct Tensor { void add_(); }; }\nvoid f(at::Tensor& t) { t.add_(); }",
    "headers that it does not use": "#include <csignal>\n#include <cstdio>\n#include <filesystem>\n"
    "#include <fstream>\n#include <unistd.h>\nint f() { return 1; }",
}


def objections_to(code: str, root: Path) -> str:
    if not CXX:
        pytest.skip("there is no C++ compiler")
    source, library = root / "stage.cpp", root / "libstage.so"
    source.write_text(code)
    subprocess.run([CXX, "-std=c++20", "-fPIC", "-shared", "-o", str(library), str(source)], check=True)
    return objections(SimpleNamespace(header_folders=lambda: [ROOT / "common/ddp"]), library, root, Sandbox())


@pytest.mark.parametrize("word", REFUSED)
def test_what_reaches_outside_is_named(word: str, tmp_path: Path) -> None:
    assert re.search(rf"stage\.cpp:\d+: uses \S*{word}", objections_to(REFUSED[word], tmp_path))


@pytest.mark.parametrize("word", HIDDEN)
def test_what_is_hidden_by_macros_is_named_too(word: str, tmp_path: Path) -> None:
    assert word in objections_to(HIDDEN[word], tmp_path)


@pytest.mark.parametrize("what", ALLOWED)
def test_what_a_stage_needs_is_let_through(what: str, tmp_path: Path) -> None:
    assert objections_to(ALLOWED[what], tmp_path) == ""


@pytest.mark.slow
@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@each_stage_built(*IMPLEMENTATIONS)
def test_solutions_and_stubs_use_nothing_else(stage: Stage, impl: str) -> None:
    library = ROOT / "build/stages" / impl / stage.name / "libstage.so"
    assert objections(stage, library, ROOT / impl / stage.name, Sandbox()) == ""


@pytest.mark.parametrize(
    "symbol, name",
    [
        ("dlopen", "dlopen"),
        ("_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE", "at::_ops::add_Tensor::call"),
        ("_ZTVN5torch8autograd4NodeE", "torch::autograd::Node"),
        ("_Znwm", "operator new"),
        ("_ZTHN3c104impl26raw_local_dispatch_key_setE", "c10::impl::raw_local_dispatch_key_set"),
    ],
)
def test_a_mangled_name_begins_with_its_namespaces(symbol: str, name: str) -> None:
    assert qualified_name(symbol) == name


@pytest.fixture
def jailed(lab: Lab) -> Lab:
    """Without the look at the code, so that the layers below it show."""
    require_jail()
    look = "def objections(stage: Stage, library: Path, folder: Path, sandbox: Sandbox) -> str:"
    lab.edit("tools/grading/sandbox/untrusted.py", look, f"{look}\n    return ''")
    forget = "def _forget_other_files(self, library: Path) -> None:"
    lab.edit("tools/grading/compiling/confined.py", forget, f"{forget}\n        return")
    lab.write("build/lib/libddp.so", "")
    python = f"{sys.base_prefix!r}, {sys.prefix!r}, "  # in which the test program is written
    lab.edit("tools/grading/sandbox/sandbox.py", "SYSTEM = (", f"SYSTEM = ({python}")
    return lab


@pytest.fixture
def unjailed(jailed: Lab) -> Lab:
    """Where a system has neither namespaces nor Landlock."""
    limit = "def limit_access(given: Permissions, private: str) -> None:"
    jailed.edit("tools/grading/sandbox/jail.py", limit, f"{limit}\n    return")
    start = "def unshare(namespaces: int) -> None:"
    broken = f"{start}\n    raise OSError(1, 'unshare: Operation not permitted')"
    jailed.edit("tools/grading/sandbox/jail.py", start, broken)
    return jailed


def test_nobody_is_graded_without_what_scenarios_do_at_least(jailed: Lab) -> None:
    (jailed.root / f"tests/{STAGE}/minimum_activity.json").unlink()
    assert "make test IMPL=solutions" in jailed.grade(ALL_PASS, "--stage=01", "--untrusted", code=3)


def test_what_cannot_be_looked_at_is_not_graded(lab: Lab) -> None:
    """Its library is no library here."""
    said = lab.grade(ALL_PASS, "--stage=01", "--untrusted", code=4)
    assert "was not graded" in said and "objcopy failed" in said


@pytest.mark.parametrize(
    "statement, error",
    [
        ("open('build/grade/results.json', 'w')", "No such file"),
        (f"open('build/bin/tests_{STAGE}', 'w')", "Read-only file system|Permission denied"),
        (f"open('assignments/{STAGE}/naive_ddp.cpp')", "No such file"),
        (f"open('tests/{STAGE}/a.cpp')", "No such file"),
        ("open(os.environ['TMPDIR'] + '/f', 'wb').write(bytes(1 << 27))", "No space left"),
        (f"os.kill({os.getpid()}, 9)", "No such process"),
        ("import socket; socket.create_connection(('192.0.2.1', 80), 1)", "Network is unreachable"),
    ],
    ids=["results", "programs", "sources", "tests", "much in its own folder", "other processes", "the network"],
)
def test_what_the_jail_keeps_from_a_stage(jailed: Lab, statement: str, error: str) -> None:
    student = f"""
        try:
            {statement}
            said = 'it worked'
        except OSError as error:
            said = str(error)
        def run(name): return {{'status': 'failed', 'failures': [said]}}
        """
    said = jailed.grade(student, "--untrusted", code=1)
    assert "it worked" not in said
    assert re.search(error, said)


def test_what_it_does_well_counts_and_nothing_survives(jailed: Lab) -> None:
    daemon = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(600)
    os._exit(0)
"""
    jailed.grade(daemon + ALL_PASS, "--untrusted")
    assert jailed.results()["score"] == 15
    wait_for(lambda: not processes_in(jailed.root), "the end of all processes")


def test_results_are_written_when_nothing_of_the_stage_runs(unjailed: Lab) -> None:
    student = """
        said = []
        def run(name):
            said.append(open('build/grade/results.json').read())
            return {'status': 'passed', 'notes': [str(any('"score": 5' in text for text in said))]}
        """
    assert unjailed.grade(student, "--untrusted", "--verbose").count("False") == 3


def test_a_stage_whose_program_has_changed_is_not_run(unjailed: Lab) -> None:
    unjailed.second_stage(ALL_PASS)
    said = unjailed.grade(f"open('build/bin/tests_{OTHER}', 'a').write('# mine')\n{ALL_PASS}", "--untrusted", code=4)
    assert "UNTRUSTED=1: no namespaces here (the jail: unshare: Operation not permitted)" in said
    assert f"build/bin/tests_{OTHER} changed after the first stage had begun" in said
    assert unjailed.statuses() == ["passed"] * 3 + ["failed"] * 3
