"""A Slurm cluster of one node on this machine's loopback, for the tests of a session.

A test module asks for it with `pytest_plugins = ("slurm_cluster",)` and a parameter `slurm`. The fixture starts munged,
slurmctld and slurmd with a configuration of their own in a temporary folder, sets SLURM_CONF, and ends the three at the
end of the session. Where a cluster cannot be started the tests are skipped with the reason; with
HARDTACK_REQUIRE_SLURM=1 they fail.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import free_port

DAEMONS = ("munged", "slurmctld", "slurmd")
CPUS = 4  # tasks that run at the same time, whatever the machine has
START_S = 20.0
SETTINGS = """
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
MinJobAge=600
JobRequeue=1
KillWait=1
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
NodeName=localhost NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=localhost MaxTime=1 State=UP
"""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A running cluster. `started_in_s` is what the start took."""

    folder: Path
    started_in_s: float

    def ask(self, *words: str) -> str:
        """The standard output of a command of Slurm's."""
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout.strip()


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """A cluster with 4 CPUs and the partitions main and short (at most one minute); SLURM_CONF is set."""
    reason = why_not()
    if reason:
        _give_up(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    started: list[subprocess.Popen[bytes]] = []
    before = os.environ.get("SLURM_CONF")
    try:
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        began = time.monotonic()
        try:
            _start(folder, started)
        except (OSError, TimeoutError) as error:
            _give_up(f"the cluster did not start: {error}")
        yield Cluster(folder, time.monotonic() - began)
        subprocess.run(["scancel", "--user", "root"], capture_output=True, timeout=60)
    finally:
        _stop(started)
        if before is None:
            os.environ.pop("SLURM_CONF", None)
        else:
            os.environ["SLURM_CONF"] = before
        shutil.rmtree(folder, ignore_errors=True)


def why_not() -> str:
    """Why no cluster can be started here; empty where one can."""
    missing = [name for name in (*DAEMONS, "sbatch", "squeue", "scontrol") if _binary(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: slurmctld slurmd slurm-client munge)"
    return "" if os.geteuid() == 0 else "slurmd must be started as root"


def _binary(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


def _give_up(reason: str) -> None:
    if os.environ.get("HARDTACK_REQUIRE_SLURM") == "1":
        pytest.fail(f"HARDTACK_REQUIRE_SLURM=1, but {reason}")
    pytest.skip(f"no Slurm: {reason}")


# ---------------------------------------------------------------- the daemons


def _start(folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    for name in ("controller", "node"):
        (folder / name).mkdir()
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    ports = {"controller_port": free_port(), "node_port": free_port()}
    (folder / "slurm.conf").write_text(SETTINGS.format(folder=folder, cpus=CPUS, **ports))
    munge = {f"--{name}-file": folder / f"munge.{name}" for name in ("key", "pid", "log", "seed")}
    paths = [str(word) for pair in munge.items() for word in pair]
    _daemon(folder, started, "munged", "--foreground", "--force", "--socket", str(folder / "munge.socket"), *paths)
    _wait(folder, lambda: (folder / "munge.socket").exists())
    _daemon(folder, started, "slurmctld", "-D", "-i")
    _daemon(folder, started, "slurmd", "-D", "-N", "localhost")
    _wait(folder, _is_idle)


def _daemon(folder: Path, started: list[subprocess.Popen[bytes]], name: str, *words: str) -> None:
    binary = _binary(name)
    assert binary is not None
    with open(folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen([binary, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    started.append(process)


def _is_idle() -> bool:
    done = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True)
    return "idle" in done.stdout


def _wait(folder: Path, ready) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > deadline:
            logs = [f"{path.name}: {path.read_text(errors='replace')[-500:]}" for path in folder.glob("*.log")]
            raise TimeoutError("\n".join(logs))
        time.sleep(0.05)


def _stop(started: list[subprocess.Popen[bytes]]) -> None:
    """In reverse order: the node ends its jobs' processes while the controller still answers."""
    for process in reversed(started):
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
