"""srun and sbatch on two machines: a Slurm cluster of network namespaces, with the script of docs/several_machines."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

from tests.common.test_hosts import HELLO, Host, hosts, why_no_hosts
from tests.common.test_launch import hello
from tools.grading.stages import all_stages

GUARD = ROOT / "tools/grading/running/guard.py"
SCRIPT = "docs/several_machines/two_nodes.sbatch"
STARTING_S = 60
CONFIGURATION = """\
ClusterName=lab
SlurmctldHost=host1
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=host[1-2] CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES
"""


def why_no_slurm() -> str:
    tools = ("slurmctld", "slurmd", "srun", "sbatch", "munged")
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        return f"skipped: no {', '.join(missing)} here, which Debian has in slurmctld, slurmd, slurm-client and munge"
    if os.geteuid():
        return "skipped: only root can start Slurm's daemons"
    return why_no_hosts()


@pytest.mark.slow
@pytest.mark.builds("hello_ranks", "all_stages", "collectives", *(f"solutions_{stage.name}" for stage in all_stages()))
class Slurm(unittest.TestCase):
    def setUp(self) -> None:
        if why := why_no_slurm():
            self.skipTest(why)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)  # munge and the daemons want to see who could change their files
        self.hosts = stack.enter_context(hosts(2, self.folder, own_users=False))
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder))
        (self.folder / "key").touch(0o400)
        (self.folder / "key").write_bytes(os.urandom(128))
        files = {"key-file": "key", "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        options = [f"--{name}={self.folder / file}" for name, file in {**files, "seed-file": "munge.seed"}.items()]
        self.daemon(stack, self.hosts[0], "munged", "--foreground", "--force", *options)
        self.wait_for(lambda: (self.folder / "munge.socket").exists())
        self.daemon(stack, self.hosts[0], "slurmctld", "-D")
        for host in self.hosts:
            (self.folder / host.name).mkdir()
            self.daemon(stack, host, "slurmd", "-D", "-N", host.name)
        self.wait_for(lambda: "2 idle" in " ".join(self.run_on_first("sinfo", "--noheader").stdout.split()))

    def daemon(self, stack: contextlib.ExitStack, host: Host, *command: str) -> None:
        log = stack.enter_context((self.folder / f"{command[0]}.{host.name}.out").open("w"))
        guarded = [sys.executable, str(GUARD), str(os.getpid()), *command]  # all that it starts ends with it
        process = subprocess.Popen([*host.inside, *guarded], env=self.environment, stdout=log, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.terminate)

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """A daemon tells nobody that it is ready: it has to be asked."""
        end = time.monotonic() + STARTING_S
        while not ready():
            self.assertLess(time.monotonic(), end, "Slurm does not start")
            time.sleep(0.1)

    def run_on_first(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **variables}
        return subprocess.run(
            [*self.hosts[0].inside, *command], env=environment, capture_output=True, text=True, timeout=300
        )

    def test_srun(self) -> None:
        done = self.run_on_first("srun", "--nodes=2", "--ntasks=4", HELLO)
        self.assertEqual((done.returncode, sorted(done.stdout.splitlines())), (0, hello(4)), done.stderr)

    def test_the_script_for_two_nodes(self) -> None:
        log = self.folder / "job.log"
        result = self.folder / "result.json"
        script = self.folder / "script"
        script.write_text((ROOT / SCRIPT).read_text().replace('"ddp-lab.$SLURM_JOB_ID.json"', str(result)))
        done = self.run_on_first("sbatch", "--wait", f"--output={log}", str(script), IMPL="solutions")
        text = log.read_text() if log.exists() else "no log"
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + text)
        self.assertIn("an all-reduce of 1000000 bytes takes", text)
        self.assertEqual(text.count("4 ranks on 2 machines agree with one process"), 5, text)
        self.assertTrue(result.exists(), text)
