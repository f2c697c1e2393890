"""Other processes that a test needs: the command, a script, the ranks of torchrun.

A new Python takes four to eight seconds to import torch, and many tests start one. `hardtack`, `script` and `ranks`
start theirs from multiprocessing's fork server, which has imported everything once per test session: a child is a
process of its own (working directory, environment, signals, exit code), ready at once. `installed` and `torchrun`
start the real commands, for tests of what the commands themselves do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("hardtack"))
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a process left: exit code (negative for a signal), standard output and standard error."""

    returncode: int
    stdout: str
    stderr: str


def environment(**extra: str) -> dict[str, str]:
    """One thread per process, and no process group that the tests themselves may run in."""
    ours = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "80", "NO_COLOR": "1"}
    return {key: value for key, value in os.environ.items() if key not in RANK_VARIABLES} | ours | extra


# ---------------------------------------------------------------- children of the fork server


class Started:
    """A running child; `wait` returns what it left."""

    def __init__(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], what: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="process-")
        self.files = [Path(self.folder.name) / name for name in ("stdout", "stderr")]
        arguments = (list(words), str(cwd), dict(env), what, [str(path) for path in self.files])
        self.process: ForkServerProcess = server().Process(target=_child, args=arguments)
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def running(self) -> bool:
        return self.process.is_alive()

    def wait(self, timeout_s: float = 120) -> Ended:
        self.process.join(timeout_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            raise TimeoutError(f"a process took more than {timeout_s} s:\n{self.files[1].read_text()[-3000:]}")
        out, err = (path.read_text() if path.exists() else "" for path in self.files)
        self.folder.cleanup()
        assert self.process.exitcode is not None
        return Ended(self.process.exitcode, out, err)


@functools.cache
def server() -> multiprocessing.context.ForkServerContext:
    """The fork server of this test process, with everything imported that a command may import."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    try:  # the server's own interpreter finds `process_preload` by this path alone
        forkserver.set_forkserver_preload(["process_preload"])
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return multiprocessing.get_context("forkserver")


def _child(words: list[str], cwd: str, env: dict[str, str], what: str, files: list[str]) -> None:
    """Become what a shell would have started: environment, working directory, argv, the three streams."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, name in ((0, os.devnull), (1, files[0]), (2, files[1])):
        opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    if what == "script":
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")
    else:
        sys.argv = [COMMAND, *words]
        from hardtack.__main__ import main

        sys.exit(main())


def start(*words: str, cwd: Path, **extra: str) -> Started:
    """The command `hardtack WORDS…`, started and not waited for."""
    return Started(words, cwd=cwd, env=environment(**extra), what="command")


def hardtack(*words: str, cwd: Path, timeout_s: float = 120) -> Ended:
    """The command `hardtack WORDS…` in a process of its own."""
    return start(*words, cwd=cwd).wait(timeout_s)


def script(path: Path, *words: str, cwd: Path, timeout_s: float = 120) -> Ended:
    """`python PATH WORDS…` in a process of its own."""
    return Started([str(path), *words], cwd=cwd, env=environment(), what="script").wait(timeout_s)


def ranks(*words: str, cwd: Path, processes: int = 2, timeout_s: float = 120) -> list[Ended]:
    """`hardtack WORDS…` as the ranks of one process group; when one fails, the others are ended, as torchrun does."""
    port, started = str(free_port()), []
    for rank in range(processes):
        group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        started.append(start(*words, cwd=cwd, **{key: str(value) for key, value in group.items()}, **address))
    deadline = time.monotonic() + timeout_s
    while any(each.running() for each in started) and time.monotonic() < deadline:
        if any(each.process.exitcode for each in started):
            time.sleep(0.5)
            for each in started:
                with contextlib.suppress(ProcessLookupError):
                    each.process.terminate()
        time.sleep(0.01)
    return [each.wait(max(deadline - time.monotonic(), 1)) for each in started]


# ---------------------------------------------------------------- the real commands


def installed(*words: str, cwd: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """The installed command, as a shell starts it."""
    return subprocess.run(
        [COMMAND, *words], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout_s
    )


def python(*words: str, cwd: Path, timeout_s: float = 120, **extra: str) -> subprocess.CompletedProcess[str]:
    """`python WORDS…`: a new interpreter that has imported nothing."""
    command, env = [sys.executable, *words], environment(**extra)
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s)


def torchrun(*words: str, cwd: Path, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """`torchrun -m hardtack WORDS…` on the CPU."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_addr",
        "127.0.0.1", "--master_port", str(free_port()), "-m", "hardtack", *words,
    ]  # fmt: skip
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=180)


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]
