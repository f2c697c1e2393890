"""`evidence.py spend`: studies, one job after the other, within a number of GPU minutes; under MPS where it is."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hardtack.base.errors import UserError

SCALE = "short"
# (studies, seeds): the papers' main claims first, and of those the ones that take few minutes. Studies that share runs
# are one job: weights are not kept, so all that is asked of a run must be measured while it is there
ORDER: tuple[tuple[tuple[str, ...], int], ...] = (
    (("cauchy/table1", "cauchy/figure3"), 1),
    (("architectures/table2", "architectures/table1", "cauchy/spectra", "architectures/figure1",
      "architectures/figure4"), 1),
    (("rspc/masks_alike",), 1), (("xcit/table2", "xcit/table1"), 1), (("cauchy/table1", "cauchy/figure3"), 3),
    (("rspc/masks_alike",), 3), (("architectures/table2",), 3),
    (("rspc/drop_against_occlude",), 1), (("xcit/table4",), 1), (("architectures/figure3",), 1),
)  # fmt: skip
_GRACE_S = 20.0  # for a study to stop
_USERS_MISTAKE = 2  # the exit code of a command that was refused


def spend(root: Path, minutes: float, data: str, workers: int) -> None:
    """Run studies until the time is over. What is measured is kept; a training that is stopped goes on in this ROOT."""
    end = time.monotonic() + 60 * minutes - _GRACE_S
    root.mkdir(parents=True, exist_ok=True)
    device = _device()  # asked for inside, this process would use the service, too, and it could not end
    shared = [f"workers={workers}", f"per_gpu={workers}"] if workers > 1 and device != "CPU" else []
    with multi_process_service():
        for names, seeds in ORDER:
            if (left := end - time.monotonic()) <= 0:
                return
            words = [*names, f"scale={SCALE}", f"seeds={seeds}", f"output={root}", f"data.root={data}", *shared]
            began = time.monotonic()
            process = subprocess.Popen([sys.executable, "-m", "hardtack", "study", *words], start_new_session=True)
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=left)
            finally:
                _stop(process)
                _note(root, names, seeds, device, time.monotonic() - began, finished=process.returncode == 0)
            if process.returncode == _USERS_MISTAKE:  # every other study would fail alike
                raise UserError(f"hardtack study {' '.join(words)} was refused")


def _note(root: Path, names: tuple[str, ...], seeds: int, device: str, seconds: float, *, finished: bool) -> None:
    log = root / "minutes.json"
    spent = json.loads(log.read_text()) if log.is_file() else []
    spent.append({
        "date": datetime.date.today().isoformat(), "study": ", ".join(names), "seeds": seeds, "device": device,
        "minutes": round(seconds / 60, 2), "finished": finished,
    })  # fmt: skip
    log.write_text(json.dumps(spent, indent=1) + "\n")


@contextlib.contextmanager
def multi_process_service() -> Iterator[None]:
    """NVIDIA's MPS for the processes that are started inside, where it is installed: their kernels run side by side."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ or Path("/tmp/nvidia-mps").exists():  # one runs
        yield
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        if subprocess.run([control, "-d"], check=False, env={**os.environ, **places}).returncode:
            yield
            return
        os.environ |= places
        try:
            yield
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for the processes that still use it
                subprocess.run([control], input=b"quit\n", check=False, timeout=_GRACE_S)
            for name in places:
                del os.environ[name]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a study and its workers, if it has not ended by itself."""
    for how, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=patience)


def _device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
