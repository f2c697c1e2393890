"""The connection to a Ray cluster: made for one command, or the session of a script that has called `ray.init`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError


class Connection:
    """The module `ray`, connected to the cluster at `address` or $RAY_ADDRESS, or to one on this machine.

    Without an address, Ray looks for a cluster that this machine is part of, and starts one where there is none. A
    session that the script has begun itself is used as it is, and not ended by `close`. During a session of our own,
    SIGTERM ends the command as Ctrl-C does, unless the script has a handler: Ray's prints the stack of its own code.
    """

    def __init__(self, address: str | None) -> None:
        self.ray = _module()
        self.is_ours = not self.ray.is_initialized()
        self._handler = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
        if self.is_ours:
            _begin_session(self.ray, address or os.environ.get("RAY_ADDRESS") or None)
            # Ray's own library has set a handler by now, whatever `getsignal` says
            is_default = self._handler is signal.SIG_DFL
            _handle_sigterm(signal.default_int_handler if is_default else self._handler)

    def close(self) -> None:
        if self.is_ours:
            self.ray.shutdown()
            _handle_sigterm(self._handler)
        self.is_ours = False


def _handle_sigterm(handler: Any) -> None:
    with contextlib.suppress(ValueError):  # not in the main thread, where Ray sets no handler either
        signal.signal(signal.SIGTERM, handler)


def _module() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise UserError("--on ray needs the package ray: pip install 'hardtack[ray]'") from None
    return ray


def _begin_session(ray: Any, address: str | None) -> None:
    if (address or "").startswith(("ray://", "//")):  # also --on ray://HOST:PORT
        raise UserError(
            f"--on ray: {address} is the address of a Ray client, which has no disk in the cluster to serve images "
            "from; run the command on a machine of the cluster (ray start --address=HOST:6379), with --on ray"
        )
    if address in (None, "auto"):  # passed on as it is: with an address, Ray would not send the token of this machine
        _check_cluster_of_this_machine()
    else:
        _check_answers(address, f"no connection to the cluster {address}")
    quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False, "namespace": "hardtack"}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        if address and address != "local":
            ray.init(address=address, **quiet)
        else:
            ray.init(address=address, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        hint = "" if address in (None, "local") else "; a cluster with a token needs RAY_AUTH_MODE=token"
        raise UserError(
            f"--on ray: no connection to the cluster {address or 'on this machine'}: {reason}{hint}"
        ) from None


def _check_cluster_of_this_machine() -> None:
    """Ask whether the cluster answers whose address the last `ray start` on this machine has left in Ray's folder."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        address = Path(folder, "ray", "ray_current_cluster").read_text().strip()
    except OSError:  # none was started, or it was stopped
        return
    _check_answers(
        address,
        f"the cluster {address}, for which `ray start` was typed on this machine, does not answer; `ray stop` forgets "
        "it, and --on ray:local starts a new one for this command",
    )


def _check_answers(address: str | None, message: str) -> None:
    """Ask whether anything answers at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except OSError as error:
        raise UserError(f"--on ray: {message} ({error})") from None


def free(ray: Any) -> str:
    """What the cluster has left, for a message."""
    left = ray.available_resources()
    return f"{left.get('CPU', 0):g} CPU cores, {left.get('GPU', 0):g} GPUs on {len(ray.nodes())} machines"


def lost_errors(ray: Any) -> tuple[type[Exception], ...]:
    errors = ray.exceptions
    return (errors.RayActorError, errors.WorkerCrashedError, errors.OutOfMemoryError, errors.ObjectLostError)
