"""Strangers' code, with UNTRUSTED=1: what a stage may use, on small libraries made by the real compiler, and how the
grader runs one that got past that look. What real ranks may do is in test_attacks.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lab.marks import each_stage_built
from tests.tools.conftest import ALL_PASS, OTHER, STAGE, Lab, processes_in, require_jail, wait_for
from tools.grading.sandbox import untrusted
from tools.grading.sandbox.untrusted import Compiled, is_public, objections, qualified_name
from tools.grading.stages import IMPLEMENTATIONS, Stage, named
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
    "syscall": "#include <unistd.h>\nlong f() { return syscall(39); }",
    "asm": 'void f() { asm("nop"); }',
    "__asm__": 'void f() { __asm__("nop"); }',
    "constructor": "[[gnu::constructor]] void f() {}",
    "c10d::Reducer": "namespace c10d { struct Reducer { void run(); }; }\nvoid f(c10d::Reducer& r) { r.run(); }",
    "c10d::compute_bucket": "namespace c10d { void compute_bucket_assignment_by_size(); }\n"
    "void f() { c10d::compute_bucket_assignment_by_size(); }",
    "ddp::testing": "namespace ddp::testing { void pass(); }\nvoid f() { ddp::testing::pass(); }",
    "statistics.h": f'#include "{ROOT}/common/ddp/meters/statistics.h"',
}
# What hides the word from a reader of the source.
HIDDEN = {
    "dlopen": '#include <dlfcn.h>\n#define GLUE(a, b) a##b\nvoid* f() { return GLUE(dl, open)("x", 2); }',
    "syscall": "#include <unistd.h>\n#define GLUE(a, b) a##b\nlong f() { return GLUE(sys, call)(39); }",
    "statistics.h": f'#define HEADER "{ROOT}/common/ddp/meters/statistics.h"\n#include HEADER',
}
ALLOWED = {
    "threads": "#include <mutex>\n#include <thread>\nstd::mutex m; void f() { std::thread([] { m.lock(); }).join(); }",
    "printing": '#include <cstdio>\n#include <iostream>\nvoid f() { std::printf("%d", 1); std::cerr << 1; }',
    "atomics that wait": "#include <atomic>\nstd::atomic<int> a; void f() { a.wait(0); a.notify_all(); }",
    "functions of the lab": "namespace ddp { void broadcast(int); }\nvoid f() { ddp::broadcast(1); }",
    "libtorch": "namespace at { struct Tensor { void add_(); }; }\nvoid f(at::Tensor& t) { t.add_(); }",
    "headers that it does not use": "#include <csignal>\n#include <cstdio>\n#include <filesystem>\n"
    "#include <fstream>\n#include <unistd.h>\nint f() { return 1; }",
    "a neighbour": '#include "neighbour.h"',
}


def objections_to(code: str, root: Path) -> str:
    if not CXX:
        pytest.skip("there is no C++ compiler")
    source, library = root / "stage.cpp", root / "libstage.so"
    source.write_text(code)
    (root / "neighbour.h").write_text("inline int neighbour() { return 1; }")
    command = [CXX, "-std=c++20", "-fPIC", "-o", str(root / "stage.o"), "-c", str(source)]
    entry = {"file": str(source), "directory": str(root), "command": shlex.join(command)}
    (root / "compile_commands.json").write_text(json.dumps([entry]))
    subprocess.run(command, check=True)
    subprocess.run([CXX, "-shared", "-o", str(library), str(root / "stage.o")], check=True)
    stage = SimpleNamespace(name="09_untrusted", sources=lambda impl: [source])
    return objections(Compiled(stage, "assignments", library, root))


@pytest.mark.parametrize("word", REFUSED)
def test_what_reaches_outside_is_named(word: str, tmp_path: Path) -> None:
    assert re.search(rf"stage\.cpp:\d+: (uses|includes) \S*{word}", objections_to(REFUSED[word], tmp_path))


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
    assert objections(Compiled(stage, impl, library, ROOT / "build")) == ""


def test_nobody_is_graded_without_what_scenarios_do_at_least(lab: Lab) -> None:
    (lab.root / f"tests/{STAGE}/minimum_activity.json").unlink()
    assert "make test IMPL=solutions" in lab.grade(ALL_PASS, "--stage=01", "--untrusted", code=3)


@pytest.mark.parametrize("line", ["  401000:\tsyscall", "  401000:\tint    $0x80", "    1004:\tsvc\t#0x0"])
def test_instructions_that_call_the_system_are_known_on_each_processor(line: str) -> None:
    assert untrusted._SYSTEM_CALL.search(line)


@pytest.mark.parametrize(
    "file, public",
    [
        ("solutions/05_ring_all_reduce/ring_all_reduce.cpp", False),
        ("benchmarks/baselines/butterfly.h", False),
        ("common/ddp/baselines/reducer_baseline.h", False),
        ("assignments/01_naive_ddp/naive_ddp.h", False),
        ("assignments/05_ring_all_reduce/ring_all_reduce.h", True),
        ("common/ddp/collectives.h", True),
    ],
)
def test_answers_that_are_there_are_nobodys_headers(file: str, public: bool) -> None:
    assert (ROOT / file).exists()
    assert is_public(ROOT / file, named("05_ring_all_reduce")) is public


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
    look = "def objections(code: Compiled) -> str:"
    lab.edit("tools/grading/sandbox/untrusted.py", look, f"{look}\n    return ''")
    lab.write("build/lib/libddp.so", "")
    return lab


@pytest.mark.parametrize(
    "statement, error",
    [
        ("open('build/grade/results.json', 'w')", "Read-only file system|Permission denied"),
        (f"open('build/bin/tests_{STAGE}', 'w')", "Read-only file system|Permission denied"),
        (f"open('assignments/{STAGE}/naive_ddp.cpp', 'w')", "Read-only file system|Permission denied"),
        ("open(os.environ['TMPDIR'] + '/f', 'wb').write(bytes(1 << 27))", "No space left"),
        (f"os.kill({os.getpid()}, 9)", "No such process"),
        ("import socket; socket.create_connection(('192.0.2.1', 80), 1)", "Network is unreachable"),
    ],
    ids=["results", "programs", "sources", "much in its own folder", "other processes", "the network"],
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


def test_results_are_written_when_nothing_of_the_stage_runs(jailed: Lab) -> None:
    student = """
        said = []
        def run(name):
            said.append(open('build/grade/results.json').read())
            return {'status': 'passed', 'measured': [str(any('"score": 5' in text for text in said))]}
        """
    assert jailed.grade(student, "--untrusted", "--verbose").count("False") == 3


def test_a_stage_whose_program_has_changed_is_not_run(jailed: Lab) -> None:
    main = "def main() -> None:"
    broken = f"{main}\n    raise OSError(1, 'unshare: Operation not permitted')"
    jailed.edit("tools/grading/sandbox/jail.py", main, broken)
    jailed.second_stage(ALL_PASS)
    said = jailed.grade(f"open('build/bin/tests_{OTHER}', 'a').write('# mine')\n{ALL_PASS}", "--untrusted", code=1)
    assert "UNTRUSTED=1: no namespaces here (the jail: unshare: Operation not permitted)" in said
    assert f"build/bin/tests_{OTHER} changed after the first stage had begun" in said
    assert jailed.statuses() == ["passed"] * 3 + ["failed"] * 3
