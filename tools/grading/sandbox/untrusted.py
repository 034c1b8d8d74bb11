"""What a stage's library may import: a friendly message for honest code that uses more than it may (UNTRUSTED=1).

An allowlist: libtorch, without what answers a stage, opens files or switches observers off; the C++ library, without
files; harmless functions of libc; what the public headers declare. It stops mistakes, not people: whatever code says of
itself, the jail holds it when it is compiled, and the kernel when it runs (tools/grading/sandbox/sandbox.py).

A header that is included and not used, such as <fstream>, is nobody's business: it comes with others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.grading.sandbox.sandbox import Sandbox, done_in_jail
from tools.grading.stages import Stage
from tools.setup.toolchain import LabError

SHOWN = 5
LONGEST_NAME = 4096
# syscall: the C++ library waits on atomics by it.
_C_FUNCTIONS = frozenset(
    """
    abort aligned_alloc bcmp bsearch calloc clock_gettime fflush fprintf fputc fputs free fwrite getenv
    gettimeofday isalnum isalpha isdigit isspace malloc memchr memcmp memcpy memmove memset nanosleep perror
    posix_memalign printf putchar puts qsort rand realloc sched_yield snprintf srand stderr stdout stpcpy
    strchr strcmp strcpy strdup strlen strncmp strncpy strrchr strstr strtod strtof strtol strtoll strtoul strtoull
    syscall time tolower toupper usleep vfprintf vsnprintf
    """.split()
)
_C_FAMILIES = re.compile(
    r"__(cxa|stack_chk|assert|gxx_personality|errno_location|tls_get_addr|gmon_start|libc_single_threaded|once_proxy)"
    r"|__(dynamic_cast|isoc23_strto\w+)$"
    r"|__(printf|fprintf|snprintf|vsnprintf|memcpy|memmove|memset|strcpy|strncpy)_chk$|_Unwind_|_ITM_|__dso_handle$"
    r"|__getauxval$"  # on arm64 compilers ask by it, which atomic instructions there are
    r"|pthread_(mutex|cond|once|self|equal|rwlock|create|join|detach|key|getspecific|setspecific)"
    r"|(a?(cos|sin|tan)h?|sincos|atan2|cbrt|ceil|exp|exp2|expm1|fabs|floor|fma|fmax|fmin|fmod|frexp|hypot|ldexp|lgamma"
    r"|log|log10|log1p|log2|l?lrint|l?lround|modf|nearbyint|pow|remainder|rint|round|scalbn|sqrt|tgamma|trunc)[fl]?$"
)
_CPP_ALLOWED = re.compile(
    r"(std|__gnu_cxx|__cxxabiv1|at|c10)(::|$)|caffe2::TypeMeta|c10d::(ProcessGroup|Work|ReduceOp|\w+Options|OpType|opType)"
    r"|c10d::Backend::(in|de)cref_pyobject"  # GCC calls them where it copies a group
    r"|torch::(autograd|dynamo::autograd|optim)::|torch::nn::Module(::|$)|operator (new|delete)"
    r"|_ZT[IS]P?K?[a-z]$"  # the type of a text, which some throw
)
_CPP_REFUSED = re.compile(
    r"std::(filesystem|basic_filebuf|basic_[io]?fstream|random_device)"
    r"|at::(_ops::)?(from_file|DynamicLibrary)|at::native::|torch::autograd::profiler|c10d::\w*Store"
    r"|c10::(SetCPUAllocator|impl::(Dispatcher|Operator)|Dispatcher|OperatorEntry|RegistrationHandleRAII)"
    r"|torch::autograd::(Engine|set_default_engine_stub)"
    r"|at::(set_record_function_tls_|enableRecordFunction|clear\w*Callbacks|(add|remove|disable|reenable)\w*Callback)"
)
LIMITS = {"CPU": 20, "AS": 2 << 30, "CORE": 0}  # of nm and readelf, to which a library may be anything
MOST_STATIC = 64 << 10  # bytes


def objections(stage: Stage, library: Path, folder: Path, sandbox: Sandbox) -> str:
    """What the code in `folder` uses that it may not, with file and line; empty if nothing."""
    names = dict.fromkeys(refused_functions(stage, library, sandbox))
    static = static_bytes(library, sandbox)
    if not names and static <= MOST_STATIC:
        return ""
    found = [f"{_first_use(folder, name)}: uses {name}" for name in [*names][:SHOWN]]
    more = [f"... and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    more += [f"static variables of {static} bytes, of {MOST_STATIC} allowed"] if static > MOST_STATIC else []
    return "\n".join(
        [
            *found,
            *more,
            "",
            "With UNTRUSTED=1 a stage may use libtorch, the C++ library without files and processes, and the public",
            "headers of the lab and of the stage. Its library was not loaded.",
        ]
    )


def refused_functions(stage: Stage, library: Path, sandbox: Sandbox) -> Iterator[str]:
    """What a stage's library imports and may not."""
    words = _words_of_public_headers(stage)
    for line in _told_of(library, sandbox, "nm", "-D", "--undefined-only", "--no-demangle"):
        symbol = line.split()[-1].partition("@")[0][:LONGEST_NAME]
        name = qualified_name(symbol)
        if not _is_allowed(symbol, name, words):
            yield name


def static_bytes(library: Path, sandbox: Sandbox) -> int:
    """Of its variables, in which tensors could lie that nobody counts."""
    lines = _told_of(library, sandbox, "readelf", "--segments", "--wide")
    writable = re.compile(r" +(?:LOAD .* 0x(\w+) RW|TLS .* 0x(\w+) R) ")
    return sum(int(found[1] or found[2], 16) for found in map(writable.match, lines) if found)


def _told_of(library: Path, sandbox: Sandbox, tool: str, *flags: str) -> list[str]:
    """What a tool says of a library, line by line."""
    command = [f"/usr/bin/{tool}", *flags, str(library)]
    done = done_in_jail(sandbox.command(command, [library], processes=False, limits=LIMITS))
    if done.returncode:
        raise LabError(f"{tool} failed: {done.stderr.strip()[-500:]}")
    return done.stdout.splitlines()


def _is_allowed(symbol: str, name: str, words: set[str]) -> bool:
    if not symbol.startswith("_Z"):
        return symbol in _C_FUNCTIONS or bool(_C_FAMILIES.match(symbol))
    if name.startswith("ddp::"):
        return name.split("::")[1] in words
    return bool(_CPP_ALLOWED.match(name)) and not _CPP_REFUSED.match(name)


def _words_of_public_headers(stage: Stage) -> set[str]:
    headers = (header for folder in stage.header_folders() for header in folder.glob("*.h"))
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


def _first_use(folder: Path, name: str) -> str:
    word = re.compile(rf"\b{re.escape(name.split('::')[-1].removeprefix('basic_'))}\b")
    for source in sorted(folder.glob("*.cpp")):
        for number, line in enumerate(source.read_text(errors="replace").splitlines(), start=1):
            if word.search(line):
                return f"{source}:{number}"
    return "the library"
