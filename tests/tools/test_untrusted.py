"""Tests of what UNTRUSTED=1 lets a stage use, on small libraries made by the real compiler."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import unittest
from pathlib import Path

from tools.grading.stages import IMPLEMENTATIONS, all_stages, named
from tools.grading.strangers import untrusted
from tools.grading.strangers.untrusted import Compiled, is_public, objections, qualified_name
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


class OneFile:
    """A stage of one source."""

    name = "09_untrusted"

    def __init__(self, source: Path) -> None:
        self.source = source

    def sources(self, impl: str) -> list[Path]:
        return [self.source]


@unittest.skipUnless(CXX, "there is no C++ compiler")
class Untrusted(unittest.TestCase):
    def objections(self, code: str) -> str:
        root = self.folder
        source, library = root / "stage.cpp", root / "libstage.so"
        source.write_text(code)
        (root / "neighbour.h").write_text("inline int neighbour() { return 1; }")
        command = [CXX, "-std=c++20", "-fPIC", "-o", str(root / "stage.o"), "-c", str(source)]
        entry = {"file": str(source), "directory": str(root), "command": shlex.join(command)}
        (root / "compile_commands.json").write_text(json.dumps([entry]))
        subprocess.run(command, check=True)
        subprocess.run([CXX, "-shared", "-o", str(library), str(root / "stage.o")], check=True)
        return objections(Compiled(OneFile(source), "assignments", library, root))

    def test_what_reaches_outside_is_named(self) -> None:
        for word, code in REFUSED.items():
            with self.subTest(word):
                self.assertRegex(self.objections(code), rf"stage\.cpp:\d+: (uses|includes) \S*{word}")

    def test_what_is_hidden_by_macros_is_named_too(self) -> None:
        for word, code in HIDDEN.items():
            with self.subTest(word):
                self.assertIn(word, self.objections(code))

    def test_what_a_stage_needs_is_let_through(self) -> None:
        for name, code in ALLOWED.items():
            with self.subTest(name):
                self.assertEqual(self.objections(code), "")

    def test_solutions_and_stubs_use_nothing_else(self) -> None:
        build = ROOT / "build"
        for stage in all_stages():
            for impl in IMPLEMENTATIONS:
                library = build / "stages" / impl / stage.name / "libstage.so"
                if not library.exists():
                    self.skipTest("the stages are not built")
                self.assertEqual(objections(Compiled(stage, impl, library, build)), "", f"{impl}, {stage.name}")


class SystemCalls(unittest.TestCase):
    def test_their_instructions_are_known_on_each_processor(self) -> None:
        for line in ("  401000:\tsyscall", "  401000:\tint    $0x80", "    1004:\tsvc\t#0x0"):
            self.assertRegex(line, untrusted._SYSTEM_CALL)


class Headers(unittest.TestCase):
    def test_answers_that_are_there_are_nobodys_headers(self) -> None:
        for file, public in {
            "solutions/05_ring_all_reduce/ring_all_reduce.cpp": False,
            "benchmarks/peers/butterfly.h": False,
            "benchmarks/peers/sync_batch_norm_peer.h": False,
            "common/ddp/peers/reducer_peer.h": False,
            "assignments/01_naive_ddp/naive_ddp.h": False,
            "assignments/05_ring_all_reduce/ring_all_reduce.h": True,
            "common/ddp/collectives.h": True,
        }.items():
            self.assertTrue((ROOT / file).exists(), file)
            self.assertEqual(is_public(ROOT / file, named("05_ring_all_reduce")), public, file)


class Names(unittest.TestCase):
    def test_a_mangled_name_begins_with_its_namespaces(self) -> None:
        for symbol, name in {
            "dlopen": "dlopen",
            "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE": "at::_ops::add_Tensor::call",
            "_ZNKSt6thread2idEv": "std::thread::id",
            "_ZTVN5torch8autograd4NodeE": "torch::autograd::Node",
            "_ZSt9terminatev": "std::terminate",
            "_Znwm": "operator new",
            "_ZTHN3c104impl26raw_local_dispatch_key_setE": "c10::impl::raw_local_dispatch_key_set",
        }.items():
            self.assertEqual(qualified_name(symbol), name)
