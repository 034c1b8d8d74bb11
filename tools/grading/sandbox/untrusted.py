"""What a stage's code may use, looked at before its library is loaded: `make test UNTRUSTED=1`, for others' code.

An allowlist. Its own files may include libtorch, the C++ library, their neighbours and the public headers of the lab
and of the stage. Its library may import libtorch, without what answers a stage or opens files; the C++ library, without
files; harmless functions of libc; what the public headers declare. No assembly, so no system calls of its own, and
nothing that asks to run before it is called.

A header that is included and not used, such as <fstream>, is nobody's business: it comes with others. This is what can
be seen without running anything; tools/grading/sandbox/sandbox.py has the layers below.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.grading.stages import Stage, short_paths
from tools.setup.configuring import compile_command
from tools.setup.toolchain import ROOT, LabError

SHOWN = 5
# syscall: the C++ library waits on atomics by it; the code itself may not name it.
_C_FUNCTIONS = frozenset(
    """
    abort aligned_alloc bcmp bsearch calloc clock_gettime fflush fprintf fputc fputs free fwrite getenv
    gettimeofday isalnum isalpha isdigit isspace malloc memchr memcmp memcpy memmove memset nanosleep perror
    posix_memalign printf putchar puts qsort rand realloc sched_yield snprintf srand stderr stdout strchr
    strcmp strcpy strdup strlen strncmp strncpy strrchr strstr strtod strtof strtol strtoll strtoul strtoull
    syscall time tolower toupper usleep vfprintf vsnprintf
    """.split()
)
_C_FAMILIES = re.compile(
    r"__(cxa|stack_chk|assert|gxx_personality|errno_location|tls_get_addr|gmon_start|libc_single_threaded|once_proxy)"
    r"|__(printf|fprintf|snprintf|vsnprintf|memcpy|memmove|memset|strcpy|strncpy)_chk$|_Unwind_|_ITM_|__dso_handle$"
    r"|__getauxval$"  # on arm64 compilers ask by it, which atomic instructions there are
    r"|pthread_(mutex|cond|once|self|equal|rwlock|create|join|detach|key|getspecific|setspecific)"
    r"|(a?(cos|sin|tan)h?|atan2|cbrt|ceil|exp|exp2|expm1|fabs|floor|fma|fmax|fmin|fmod|frexp|hypot|ldexp|lgamma|log"
    r"|log10|log1p|log2|l?lrint|l?lround|modf|nearbyint|pow|remainder|rint|round|scalbn|sqrt|tgamma|trunc)[fl]?$"
)
_CPP_ALLOWED = re.compile(
    r"(std|__gnu_cxx|__cxxabiv1|at|c10)(::|$)|caffe2::TypeMeta|c10d::(ProcessGroup|Work|ReduceOp|\w+Options|OpType|opType)"
    r"|c10d::Backend::(in|de)cref_pyobject"  # GCC calls them where it copies a group
    r"|torch::(autograd|dynamo::autograd)::|torch::nn::Module(::|$)|operator (new|delete)"
)
_CPP_REFUSED = re.compile(
    r"std::(filesystem|basic_filebuf|basic_[io]?fstream|random_device)"
    r"|at::(_ops::)?(from_file|DynamicLibrary)|at::native::|torch::autograd::profiler|c10d::\w*Store"
)
_MARKER = re.compile(r'^# (\d+) "(.*)"((?: \d)*)$')
_NEVER = re.compile(
    r"\b(?:__)?asm(?:__)?\b|\bsyscall\b"
    r"|\b(?:__)?(?:constructor|destructor|ifunc|init_priority|section)(?:__)?\s*[\](),]"
)
_SYSTEM_CALL = re.compile(r"\s(syscall|sysenter|int\s+\$0x80|svc)\b")  # the last is arm64's


@dataclass(frozen=True)
class Compiled:
    """A stage's library, and the build that made it."""

    stage: Stage
    impl: str
    library: Path
    build_dir: Path

    @property
    def sources(self) -> list[Path]:
        return self.stage.sources(self.impl)

    def compile_command(self, source: Path) -> list[str]:
        return compile_command(self.build_dir, source)


class CannotLook(LabError):
    """A tool that looks at the code failed; `said` is all that it printed."""

    def __init__(self, tool: str, said: str) -> None:
        super().__init__(f"{tool} failed, so the code could not be looked at: {said.strip()[-500:]}")
        self.said = said


def objections(code: Compiled) -> str:
    """What the code uses that it may not, with file and line; empty if nothing."""
    return _listed([*_in_sources(code), *_in_library(code)])


def objections_to_sources(code: Compiled) -> str:
    """What can be seen before anything is compiled: a compiler's messages quote the files that are included."""
    return _listed(_in_sources(code))


def objections_to_library(code: Compiled) -> str:
    return _listed(_in_library(code))


def _listed(objections: Iterable[str]) -> str:
    found = list(dict.fromkeys(objections))
    if not found:
        return ""
    more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return "\n".join(
        [
            *found[:SHOWN],
            *more,
            "",
            "With UNTRUSTED=1 a stage may use libtorch, the C++ library without files and processes, and the public",
            "headers of the lab and of the stage. Its library was not loaded.",
        ]
    )


def _output_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise CannotLook(command[0], done.stderr)
    return done.stdout


def _in_sources(code: Compiled) -> Iterator[str]:
    for source in code.sources:
        own = {source.resolve()}
        stack, line = [source.resolve()], 0
        command = [*code.compile_command(source), "-E", str(source)]
        for text in _output_of(command).splitlines():
            if marker := _MARKER.match(text):
                file, flags = Path(marker[2]).resolve(), marker[3].split()
                if "1" in flags:
                    if stack[-1] in own and file.parent == source.parent.resolve():
                        own.add(file)
                    elif stack[-1] in own and marker[2][0] != "<" and not is_public(file, code.stage):
                        yield f"{_place(stack[-1], line)}: includes {short_paths(str(file))}"
                    stack.append(file)
                elif "2" in flags and len(stack) > 1:
                    stack.pop()
                if not marker[2].startswith("<"):
                    stack[-1] = file
                line = int(marker[1])
                continue
            if stack[-1] in own and (never := _NEVER.search(text)):
                yield f"{_place(stack[-1], line)}: uses {never[0].strip(' ](),')}"
            line += 1


def is_public(file: Path, stage: Stage) -> bool:
    """libtorch's, the compiler's and the system's headers; the lab's public ones and this stage's."""
    if not file.is_relative_to(ROOT) or file.is_relative_to(ROOT / ".venv"):
        return file.is_relative_to("/usr") or "torch" in file.parts or "clang" in file.parts or "gcc" in file.parts
    return file.parent in (ROOT / "common" / "ddp", ROOT / "assignments" / stage.name)


def _in_library(code: Compiled) -> Iterator[str]:
    for name in refused_functions(code.stage, code.library):
        yield f"{_first_use(code, name)}: uses {name}"
    if _SYSTEM_CALL.search(_output_of(["objdump", "-d", "--no-show-raw-insn", str(code.library)])):
        yield "the library: makes system calls by itself"


def refused_functions(stage: Stage, library: Path) -> Iterator[str]:
    """What a stage's library imports and may not."""
    words = _words_of_public_headers(stage)
    for line in _output_of(["nm", "-D", "--undefined-only", "--no-demangle", str(library)]).splitlines():
        symbol = line.split()[-1].partition("@")[0]
        name = qualified_name(symbol)
        if not _is_allowed(symbol, name, words):
            yield name


def _is_allowed(symbol: str, name: str, words: set[str]) -> bool:
    if not symbol.startswith("_Z"):
        return symbol in _C_FUNCTIONS or bool(_C_FAMILIES.match(symbol))
    if name.startswith("ddp::"):
        return name.split("::")[1] in words
    return bool(_CPP_ALLOWED.match(name)) and not _CPP_REFUSED.match(name)


def _words_of_public_headers(stage: Stage) -> set[str]:
    headers = [*(ROOT / "common" / "ddp").glob("*.h"), *(ROOT / "assignments" / stage.name).glob("*.h")]
    return {word for header in headers for word in re.findall(r"\w+", header.read_text())}


def qualified_name(symbol: str) -> str:
    """The namespaces and names that a mangled name begins with: std::thread, at::_ops::add. A C name is itself.

    nm's own demangling puts a template's result before its name, so that a name could hide behind it.
    """
    if not symbol.startswith("_Z"):
        return symbol
    rest = re.sub(r"^_Z(T[VITSCHW]|GV|GR|Th\w?[\d_]+|Tv\w?[\d_]+_n?[\d_]+)?(N[rVK]*[RO]?)?", "", symbol)
    parts = []
    while rest:
        if rest[:2] in ("St", "Sa", "Sb", "Ss", "Si", "So", "Sd"):
            parts.append("std")
            rest = rest[2:]
        elif rest[:2] in ("nw", "na", "dl", "da") and not parts:
            return "operator new" if rest[0] == "n" else "operator delete"
        elif number := re.match(r"\d+", rest):
            end = number.end() + int(number[0])
            parts.append(rest[number.end() : end])
            rest = rest[end:]
        else:
            break
    return "::".join(parts) or symbol


def _first_use(code: Compiled, name: str) -> str:
    word = re.compile(rf"\b{name.split('::')[-1].removeprefix('basic_')}\b")
    for source in code.sources:
        for number, line in enumerate(source.read_text(errors="replace").splitlines(), start=1):
            if word.search(line):
                return _place(source, number)
    return "the library"


def _place(file: Path, line: int) -> str:
    return f"{short_paths(str(file))}:{line}"
