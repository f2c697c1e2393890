"""`hardtack doctor`: check this installation."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

import typer
from rich.markup import escape

from hardtack.base.registry import verbs
from hardtack.commands.words import console

NEEDED = ("torch", "torchvision", "timm", "numpy", "pyyaml", "pydantic", "safetensors", "pyarrow",
          "scikit-learn", "rich", "typer", "jinja2", "matplotlib")  # fmt: skip
MODULES = {"pyyaml": "yaml", "scikit-learn": "sklearn"}
OPTIONAL = {
    "duckdb": "query",
    "tensorboard": "track",
    "datasets": "hub",
    "webdataset": "hub",
    "onnx": "export",
}


class Check(NamedTuple):
    state: Literal["ok", "note", "broken"]
    what: str
    detail: str


@verbs.register("doctor")
def doctor() -> None:
    """Check this installation: versions, devices, optional packages; exit code 1 when something is broken."""
    healthy = True
    for check in examine():
        colour = {"ok": "green", "note": "yellow", "broken": "red"}[check.state]
        line = escape(f"{check.what:<14} {check.detail}")
        console.print(f"[{colour}]{check.state:<7}[/{colour}] {line}", highlight=False)
        healthy &= check.state != "broken"
    raise typer.Exit(0 if healthy else 1)


def examine() -> Iterator[Check]:
    import hardtack

    yield Check("ok", "hardtack", f"{hardtack.__version__}, Python {platform.python_version()}")
    for package in NEEDED:
        yield _package(package)
    for package, extra in OPTIONAL.items():
        present = importlib.util.find_spec(package) is not None
        yield Check(
            "ok" if present else "note",
            package,
            "present" if present else f"optional: pip install 'hardtack[{extra}]'",
        )
    yield from _devices()
    writable = os.access(".", os.W_OK)
    yield Check("ok" if writable else "broken", "folder", "runs can be written here" if writable else "not writable")


def _package(package: str) -> Check:
    try:
        importlib.import_module(MODULES.get(package, package))
        return Check("ok", package, metadata.version(package))
    except Exception as error:  # a broken binary raises anything
        return Check("broken", package, f"{type(error).__name__}: {error}; {sys.executable} -m pip install {package}")


def _devices() -> Iterator[Check]:
    try:
        import torch
    except Exception:  # reported above
        return
    if not torch.cuda.is_available():
        yield Check("note", "device", f"cpu, {torch.get_num_threads()} threads; no CUDA device is visible")
        return
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
        yield Check("ok", f"cuda:{number}", f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB, {bf16}")
