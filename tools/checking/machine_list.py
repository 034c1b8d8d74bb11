"""Which machines `make check ONLY=machines` makes, and what it runs on each: data alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.setup.system_packages import PACKAGES


@dataclass(frozen=True)
class Machine:
    """Debian's minimum, git and make; root installs `packages` before anything else."""

    name: str
    suite: str
    packages: tuple[str, ...] = ()
    user: str = "root"
    env: dict[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        who = "root" if self.user == "root" else "a user without root"
        given = [f"{name}={value}" for name, value in self.env.items()]
        return "; ".join(filter(None, (who, " ".join(self.packages), " ".join(given))))


@dataclass(frozen=True)
class Check:
    """A script of bash in the home folder, and what it has to end with and to print (regular expressions)."""

    title: str
    script: str
    says: tuple[str, ...]
    code: int = 0
    on_grader: bool = False  # in a second system, fresh as the first was
    minutes: int = 60


MACHINES = (
    Machine("debian12-root", "bookworm"),
    Machine("debian12-clang14", "bookworm", ("clang-14",), env={"CXX": "clang++-14"}),
    Machine("debian12-clang16", "bookworm", ("clang-16",), env={"CXX": "clang++-16"}),
    Machine("debian12-user-g++12", "bookworm", ("g++", "python3"), "student"),
    Machine("debian13-root", "trixie"),
    Machine("debian13-clang18", "trixie", ("clang-18",), env={"CXX": "clang++-18"}),
    Machine("debian13-g++13", "trixie", ("g++-13",), env={"CXX": "g++-13"}),
    Machine("debian13-user-g++14", "trixie", ("g++", "python3"), "student"),
    Machine("debian13-user", "trixie", tuple(PACKAGES), "student"),
)

WANTED = 2  # make's code where full marks are not reached
STUB = "assignments/01_naive_ddp/naive_ddp.cpp"
SOLUTION = "solutions/01_naive_ddp/naive_ddp.cpp"

CHECKS = (
    Check("solutions", "cd ddp-lab && make test IMPL=solutions", (r"^Total  100 / 100 points$",)),
    Check("stubs", "cd ddp-lab && make test", (r"^Total  0 / 100 points$",), WANTED),
    Check(
        "make check",
        'cd ddp-lab && make check ONLY="build format includes harness benchmarks"',
        (r"^[1-9]\d* passed, 0 failed$",),
    ),
    Check(
        "a wrong edit",
        f"""\
        cd ddp-lab && cp {SOLUTION} {STUB} &&
        mkdir wrong && python3 -m tools.checking.mutants 01_naive_ddp no_averaging wrong && cp wrong/* {STUB} &&
        make test STAGE=01
        """,
        (r"gradients are the mean over ranks +0/", r"^Next: fix "),
        WANTED,
    ),
    Check(
        "figures",
        f"""\
        cd ddp-lab && cp {SOLUTION} {STUB} && make test STAGE=01 && make figures STAGE=01
        code=$?
        git checkout --quiet {STUB}
        exit $code
        """,
        (r"^Total  15 / 15 points$", r"naive_vs_flat"),
    ),
    Check(
        "release",
        """\
        cd ddp-lab && make release && make autograder && tar xf build/release/ddp-lab-*.tar.gz -C /srv &&
        make -C /srv/ddp-lab test
        """,
        (r"^Total  0 / 100 points$",),
        WANTED,
    ),
    Check(
        "submissions",
        """\
        cd ddp-lab && python3 -m zipfile -e build/autograder/autograder.zip /srv/source || exit
        mkdir /srv/good /srv/empty && cp -r solutions/0* /srv/good && cp -r /srv/good /srv/hanging &&
        python3 -m tools.checking.mutants 01_naive_ddp endless_loop /srv/hanging/01_naive_ddp
        """,
        (),
    ),
    Check(
        "autograder",
        """\
        root=/autograder && [ "$USER" = root ] || root=~/autograder
        mkdir -p $root && cp -r /srv/source $root && cd $root || exit
        bash source/setup.sh && cp source/run_autograder . || exit
        for each in good empty hanging; do
          rm -rf submission results && cp -r /srv/$each submission && AUTOGRADER_ROOT=$root bash run_autograder || exit
          python3 -c 'import json; print("'$each' gets", json.load(open("results/results.json"))["score"])'
          grep -o "rank . hung" results/results.json | head -1
        done
        """,
        (r"^good gets 100(\.0)?$", r"^empty gets 0(\.0)?$", r"^hanging gets 85(\.0)?$\n^rank . hung$"),
        on_grader=True,
    ),
)
