"""Receipts of finished commands: what a command printed and what it depended on, so that a repeated one can be brief.

A receipt is `$HARDTACK_CACHE/receipts/KEY.json`. KEY is the digest of everything that is known before anything is read:
the words, the working folder, the environment, the versions and the source of the software. The receipt holds the state
of every file that the command read (`file_state`), what its results were (`results.fingerprint`), and its text.

A cache may be shared, and run folders come from strangers, so a receipt is believed only if its seal is right: an HMAC
with a secret in the user's home ($XDG_STATE_HOME/hardtack). One that is damaged, copied to another name or written by
somebody else counts as none, and so does everything that cannot be read or written: then the command runs as usual.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import platform
import secrets
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import hardtack
from hardtack.base.digests import json_digest, json_text
from hardtack.base.errors import UserError
from hardtack.base.file_state import FileState, file_state, settled
from hardtack.base.files import cache_folder, state_folder, write_text
from hardtack.base.limits import read_json

_FORMAT = 1
_MOST_BYTES = 2**24
_SECRET_BYTES = 32
# software that decides what is decoded, computed or read
_PACKAGES = (
    "torch", "torchvision", "timm", "numpy", "pillow", "pyarrow", "safetensors",
    "foolbox", "torchattacks", "adversarial-robustness-toolbox", "autoattack",
)  # fmt: skip
_VARIABLES = ("HOME", "PYTHONPATH", "RANK", "LOCAL_RANK", "WORLD_SIZE")
_DRIVER = "/dev/nvidiactl"


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """`files`: their states by path; `results`: their fingerprints; `text`: what was printed, part by part."""

    files: Mapping[str, FileState]
    results: Sequence[Mapping[str, Any]]
    text: Sequence[str]


def command_key(words: Sequence[str]) -> str:
    """The digest of a command and of everything around it that could change what it prints."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in _VARIABLES or (name.startswith("HARDTACK_") and name != "HARDTACK_CACHE")
    }
    has_gpu = os.path.exists(_DRIVER) and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1")
    source = file_state(Path(hardtack.__file__).parent)
    software = {name: _version(name) for name in _PACKAGES}
    machine = [platform.machine(), platform.python_version(), sys.prefix, has_gpu]
    return json_digest([_FORMAT, hardtack.__version__, source, software, machine, variables, os.getcwd(), list(words)])


def read_receipt(key: str) -> Receipt | None:
    """The receipt of this command, if its seal is right and all files are in the state that it says."""
    try:
        values = read_json(_path(key), limit=_MOST_BYTES)
        seal, secret = str(values.pop("seal")), _secret(create=False)
        if secret is None or not hmac.compare_digest(seal, _seal(secret, key, values)):
            return None
        receipt = Receipt(**values)
        unchanged = all(file_state(path) == state for path, state in receipt.files.items())
    except (OSError, UserError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return receipt if unchanged else None


def write_receipt(key: str, receipt: Receipt) -> None:
    """Keep a receipt; without a folder that can be written to, there is none."""
    values = asdict(receipt)
    with contextlib.suppress(OSError, UserError):
        secret = _secret(create=True)
        if secret is not None:
            write_text(_path(key), json_text({**values, "seal": _seal(secret, key, values)}))


def states_of(paths: Iterable[str | Path]) -> dict[str, FileState] | None:
    """The states of files and folders that a command is about to read; None if one of them is not certain to show a
    change from now on."""
    now, states = time.time_ns(), dict[str, FileState]()
    for path in paths:
        state = file_state(path)
        if state is None or not settled(state, before_ns=now):
            return None
        states[os.path.abspath(path)] = state
    return states


def _path(key: str) -> Path:
    return cache_folder() / "receipts" / f"{key}.json"


def _seal(secret: bytes, key: str, values: Mapping[str, Any]) -> str:
    return hmac.new(secret, json_text([key, values]).encode(), "sha256").hexdigest()


def _secret(*, create: bool) -> bytes | None:
    """The secret that seals the receipts of this user; None if there is none."""
    path = state_folder() / "receipts.secret"
    with contextlib.suppress(FileNotFoundError):
        secret = path.read_bytes()
        if len(secret) == _SECRET_BYTES:
            return secret
        if create:
            path.unlink()
    if not create:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    secret = secrets.token_bytes(_SECRET_BYTES)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
    except FileExistsError:  # another process was faster
        return None
    return secret


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
