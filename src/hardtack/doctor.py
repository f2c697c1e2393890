"""What this installation has and lacks."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

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


class Finding(NamedTuple):
    state: Literal["ok", "note", "broken"]
    what: str
    detail: str


def examine() -> Iterator[Finding]:
    import hardtack

    yield Finding("ok", "hardtack", f"{hardtack.__version__}, Python {platform.python_version()}")
    for package in NEEDED:
        yield _package(package)
    for package, extra in OPTIONAL.items():
        present = importlib.util.find_spec(package) is not None
        yield Finding(
            "ok" if present else "note",
            package,
            "present" if present else f"optional: pip install 'hardtack[{extra}]'",
        )
    yield from _devices()
    writable = os.access(".", os.W_OK)
    yield Finding("ok" if writable else "broken", "folder", "runs can be written here" if writable else "not writable")


def _package(package: str) -> Finding:
    try:
        importlib.import_module(MODULES.get(package, package))
        return Finding("ok", package, metadata.version(package))
    except Exception as error:  # a broken binary raises anything
        return Finding("broken", package, f"{type(error).__name__}: {error}; {sys.executable} -m pip install {package}")


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except Exception:  # reported above
        return
    if not torch.cuda.is_available():
        yield Finding("note", "device", f"cpu, {torch.get_num_threads()} threads; no CUDA device is visible")
        return
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
        yield Finding("ok", f"cuda:{number}", f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB, {bf16}")
