"""Programs with ranks on several machines, which are network namespaces of this one here, joined by a bridge.

Each has its own host name, addresses and /etc/hosts, in which, as on Debian, its own name is a loopback address. They
need no root where users may make namespaces. When the test process ends, however it ends, they are gone.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.common.test_launch import PROGRAM, environment, finish, hello

ROOT = Path(__file__).resolve().parents[2]
HELLO = str(PROGRAM)
PORT = 29500  # in a network of its own nobody else has it
NETWORK = "10.231.77"  # of the hosts alone: nothing leads out of their bridge


@dataclass
class Host:
    name: str
    inside: list[str]  # the beginning of a command that runs there

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.inside, *command], capture_output=True, text=True, timeout=60)


def why_no_hosts() -> str:
    """Empty where hosts can be made."""
    for tool, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if not shutil.which(tool):
            return f"skipped: no {tool} here, which Debian has in {package}"
    make = ["ip", "link", "add", "end1", "type", "veth", "peer", "name", "end2"]
    tried = subprocess.run([*_unshare(own_users=True), *make], capture_output=True, text=True)
    return f"skipped: no network namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def _unshare(own_users: bool) -> list[str]:
    """In namespaces of its own."""
    return ["unshare", *(["--user", "--map-root-user"] if own_users else []), "--net", "--uts", "--mount"]


@contextlib.contextmanager
def hosts(count: int, folder: Path, own_users: bool = True) -> Iterator[list[Host]]:
    """`count` hosts named host1, host2, ...; `folder` is for their files. Only root can do without own users, whom
    daemons do not like: there is but one, root."""
    with contextlib.ExitStack() as stack:
        switch = _enter(stack, _unshare(own_users), "echo ready")
        inside = _inside(switch.pid, own_users)
        found: list[Host] = []
        grades, own_grades = ROOT / "build" / "grade", folder / "grade"  # with a lock that no `make check` holds
        for place in (grades, own_grades):
            place.mkdir(parents=True, exist_ok=True)
        _must(inside, "ip link add switch type bridge && ip link set switch up")
        for number in range(1, count + 1):
            name, address = f"host{number}", f"{NETWORK}.{number}"
            lines = [f"{NETWORK}.{other} host{other}" for other in range(1, count + 1) if other != number]
            table = folder / f"{name}.hosts"
            table.write_text("\n".join(["127.0.0.1 localhost", f"127.0.1.1 {name}", *lines, ""]))
            mounts = f"mount --bind {table} /etc/hosts && mount --bind {own_grades} {grades}"
            prepare = f"{mounts} && hostname {name} && ip link set lo up && echo ready"
            holder = _enter(stack, [*inside, "unshare", "--net", "--uts", "--mount"], prepare)
            host = Host(name, _inside(holder.pid, own_users))
            _must(inside, f"ip link add port{number} type veth peer name eth0 netns {holder.pid}")
            _must(inside, f"ip link set port{number} master switch up")
            _must(host.inside, f"ip address add {address}/24 dev eth0 && ip link set eth0 up")
            found.append(host)
        yield found


def _enter(stack: contextlib.ExitStack, start: list[str], script: str) -> subprocess.Popen[str]:
    """A process that holds namespaces for as long as this one lives, after `script` has run there."""
    process = subprocess.Popen(
        [*start, "sh", "-c", f"{script} && exec cat"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    stack.callback(process.wait, 60)
    stack.callback(process.stdout.close)
    stack.callback(process.stdin.close)
    line = process.stdout.readline()
    if line != "ready\n":
        raise RuntimeError(f"no host: {' '.join(process.args)} said {line!r}")
    return process


def _inside(pid: int, own_users: bool) -> list[str]:
    users = ["--user", "--preserve-credentials"] if own_users else []
    return ["nsenter", f"--target={pid}", *users, "--net", "--uts", "--mount", f"--wd={ROOT}", "--"]


def _must(inside: list[str], script: str) -> None:
    done = subprocess.run([*inside, "sh", "-c", script], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr.strip()}")


@pytest.mark.slow
@pytest.mark.builds("hello_ranks")
class HostsTest(unittest.TestCase):
    """With ranks on self.hosts."""

    def setUp(self) -> None:
        if why := why_no_hosts():
            self.skipTest(why)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.hosts = stack.enter_context(hosts(2, self.folder))

    def start(self, host: Host, *command: str, **variables: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*host.inside, *command],
            env=environment(**variables),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def start_ranks(self, *command: str, per_host: int = 1, **variables: object) -> list[subprocess.Popen[str]]:
        """As torchrun starts them, which needs Python's own torch to run itself."""
        common = {"MASTER_ADDR": "host1", "MASTER_PORT": PORT, "WORLD_SIZE": per_host * len(self.hosts)}
        ranks = [(host, local) for host in self.hosts for local in range(per_host)]
        return [
            self.start(host, *command, **{"RANK": rank, "LOCAL_RANK": local, **common, **variables})
            for rank, (host, local) in enumerate(ranks)
        ]

    def finish(self, processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
        """Each exit code and output, without what libtorch says of addresses that no name server knows."""
        ended = [finish(process) for process in processes]
        return [(code, re.sub(r"(?m)^\[W.*client socket cannot be retrieved.*\n", "", text)) for code, text in ended]

    def assert_each(self, processes: list[subprocess.Popen[str]], code: int, *expected: str) -> None:
        for rank, (found, text) in enumerate(self.finish(processes)):
            self.assertEqual(found, code, text)
            for part in expected:
                self.assertIn(part, text, f"rank {rank}")


FOR_EVER = ("--rounds", "1000000000")


class Launchers(HostsTest):
    def test_torchrun_with_two_ranks_on_each_of_two_machines(self) -> None:
        found = self.finish(self.start_ranks(HELLO, per_host=2))
        self.assertEqual([text for _, text in found], [f"{line}\n" for line in hello(4)])
        self.assertEqual([code for code, _ in found], [0] * 4)


class Failures(HostsTest):
    def test_a_machine_without_a_master(self) -> None:
        """Says what was tried, within the time that was asked for."""
        for address in (f"{NETWORK}.99", "localhost", "no-such-host"):
            with self.subTest(address):
                variables = {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": address, "MASTER_PORT": PORT}
                rank = self.start(self.hosts[1], HELLO, **variables, DDP_LAB_TIMEOUT_S=1)
                said = f"rank 1 of 2 on host2 failed: did not reach rank 0 within 1 s at {address}:{PORT}"
                self.assert_each([rank], 1, said)

    def test_a_rank_that_was_not_started(self) -> None:
        variables = {"RANK": 0, "WORLD_SIZE": 3, "MASTER_ADDR": "host1", "MASTER_PORT": PORT}
        rank = self.start(self.hosts[0], HELLO, **variables, DDP_LAB_TIMEOUT_S=2)
        self.assert_each([rank], 1, "of 3 ranks these did not arrive within 2 s", ": 1, 2. Were they started")

    def test_interfaces_that_others_cannot_reach(self) -> None:
        """All ranks say so at once: none waits for the other."""
        for name, reason in (
            ("lo", 'it listens at "127.0.0.1"'),
            ("eth7", f'no network interface "eth7" with an address; those to others are: eth0 ({NETWORK}.1)'),
        ):
            with self.subTest(name):
                ranks = self.start_ranks(HELLO, GLOO_SOCKET_IFNAME=name)
                self.assert_each(ranks, 1, "rank 0 on host1 cannot be reached", reason, "Set GLOO_SOCKET_IFNAME")

    def test_an_interface_that_leads_elsewhere(self) -> None:
        for number, host in enumerate(self.hosts):
            self.assertEqual(host.run("ip", "link", "add", "other", "type", "bridge").returncode, 0)
            self.assertEqual(host.run("ip", "address", "add", f"10.231.7{number}.1/24", "dev", "other").returncode, 0)
            self.assertEqual(host.run("ip", "link", "set", "other", "up").returncode, 0)
        ranks = self.start_ranks(HELLO, GLOO_SOCKET_IFNAME="other", DDP_LAB_TIMEOUT_S=1)
        self.assert_each(ranks, 1, "and cannot connect with all others", "GLOO_SOCKET_IFNAME chooses another network")

    def start_long_run(self) -> list[subprocess.Popen[str]]:
        ranks = self.start_ranks(HELLO, *FOR_EVER, DDP_LAB_TIMEOUT_S=3)
        for rank in ranks:  # both are connected
            while "the sum of" not in (line := rank.stdout.readline()):
                self.assertTrue(line, "ended before it had begun")
        return ranks

    def test_a_rank_that_dies(self) -> None:
        self.check_that_rank_0_notices(lambda ranks: ranks[1].kill(), "its connection to another rank was closed")

    def test_a_machine_that_is_cut_off(self) -> None:
        def cut(_: object) -> None:
            self.assertEqual(self.hosts[1].run("ip", "link", "set", "eth0", "down").returncode, 0)

        self.check_that_rank_0_notices(cut, "another rank did not answer in time")

    def check_that_rank_0_notices(self, fail: Callable[[list[subprocess.Popen[str]]], None], expected: str) -> None:
        ranks = self.start_long_run()
        fail(ranks)
        (code, text), _ = self.finish(ranks)
        self.assertEqual(code, 1, text)
        self.assertIn(f"rank 0 of 2 on host1 failed: {expected}", text)
