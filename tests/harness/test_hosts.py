"""Programs with ranks on several machines, which are network namespaces here: tests/harness/hosts.py."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import unittest
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

from tests.harness.hosts import HELLO, NETWORK, PORT, HostsTest
from tests.harness.test_launch import finish, hello

ONLY_ALL = pytest.mark.slow
FOR_EVER = ("--rounds", "1000000000")


class Launchers(HostsTest):
    def test_torchrun_with_two_ranks_on_each_of_two_machines(self) -> None:
        found = self.finish(self.start_ranks(HELLO, per_host=2))
        self.assertEqual([text for _, text in found], [f"{line}\n" for line in hello(4)])
        self.assertEqual([code for code, _ in found], [0] * 4)

    def test_srun_needs_no_master(self) -> None:
        step = {"SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0, "SLURM_NTASKS": 2, "SLURM_NODELIST": "host[1-2]"}
        started = [
            self.start(host, HELLO, **step, SLURM_PROCID=rank, SLURM_LOCALID=0) for rank, host in enumerate(self.hosts)
        ]
        self.assert_each(started, 0, "of 2: the sum of rank + 1 is 3")

    @unittest.skipUnless(shutil.which("mpirun"), "skipped: no mpirun here, which Debian has in openmpi-bin")
    def test_mpirun_starts_ranks_on_both(self) -> None:
        done = finish(self.start(self.hosts[0], *self.mpirun(), HELLO))
        self.assertEqual(sorted(line for line in done[1].splitlines() if line.startswith("rank")), hello(4), done[1])
        self.assertEqual(done[0], 0)

    def mpirun(self) -> list[str]:
        agent = self.folder / "agent"  # in place of ssh
        cases = "".join(f'{host.name}) set -- {" ".join(host.inside)} sh -c "$*" ;;\n' for host in self.hosts)
        cases = cases.replace(" --user --preserve-credentials", "")  # it runs in that namespace already
        agent.write_text(f'#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}esac\nexec "$@"\n')
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
        command = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(agent), "--bind-to", "none"]
        command += ["--host", "host1:2,host2:2", "-x", "MASTER_ADDR=host1", "-x", f"MASTER_PORT={PORT}"]
        return command


class Failures(HostsTest):
    @ONLY_ALL
    def test_a_machine_without_a_master(self) -> None:
        """Says what was tried, and what to look at, within the time that was asked for."""
        for address, advice in (
            (f"{NETWORK}.99", "does rank 0 run there, and do firewalls let this port through?"),
            ("localhost", "MASTER_ADDR has to be what the others call rank 0's machine"),
            ("no-such-host", "MASTER_ADDR has to be the name or address by which all machines reach rank 0's"),
        ):
            with self.subTest(address):
                variables = {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": address, "MASTER_PORT": PORT}
                rank = self.start(self.hosts[1], HELLO, **variables, DDP_LAB_TIMEOUT_S=1)
                said = f"rank 1 of 2 on host2 failed: did not reach rank 0 within 1 s at {address}:{PORT}"
                self.assert_each([rank], 1, said, advice)

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

    @ONLY_ALL
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


class Links(HostsTest):
    """What the network costs is what a program measures."""

    def milliseconds(self, *arguments: str) -> float:
        (code, text), _ = self.finish(self.start_ranks(HELLO, *arguments))
        self.assertEqual(code, 0, text)
        return float(re.search(r"takes ([\d.]+) ms", text)[1])

    def shape(self, *qdisc: str) -> None:
        for host in self.hosts:
            done = host.run("tc", "qdisc", "add", "dev", "eth0", "root", *qdisc)
            if done.returncode:
                self.skipTest(f"skipped: this kernel has no {qdisc[0]}: {done.stderr.strip()}")

    @unittest.skipUnless(shutil.which("tc"), "skipped: no tc here, which Debian has in iproute2")
    def test_a_slow_link(self) -> None:
        """Of a message of S bytes each of two ranks sends S in a ring: at 80 Mbit/s 1 MB takes 0.1 s."""
        fast = self.milliseconds("--rounds", "5", "--bytes", "1000000")
        self.shape("tbf", "rate", "80mbit", "burst", "32kbit", "latency", "400ms")
        slow = self.milliseconds("--rounds", "5", "--bytes", "1000000")
        self.assertLess(fast, 50)
        self.assertTrue(90 < slow < 200, f"{slow} ms")

    @unittest.skipUnless(shutil.which("tc"), "skipped: no tc here, which Debian has in iproute2")
    def test_a_distant_machine(self) -> None:
        self.shape("netem", "delay", "20ms")
        self.assertGreater(self.milliseconds("--rounds", "5"), 20)
