"""`hardtack doctor`: check this installation.

The quick check reads which versions are installed and which GPUs the driver reports; it imports no package. `--full`
imports every package and computes on every device, in a process of its own: a package that crashes the interpreter is
reported by its name.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated, Literal, NamedTuple

import typer
from rich.markup import escape

from hardtack import __version__
from hardtack.base.registry import verbs
from hardtack.commands.docs_files import docs_folder
from hardtack.commands.words import console

# the lowest versions, as in pyproject.toml
REQUIRED = {
    "torch": "2.11", "torchvision": "0.26", "timm": "1.0.20", "numpy": "1.26", "pyyaml": "6.0", "pydantic": "2.7",
    "typing_extensions": "4.8",
    "safetensors": "0.4.3", "pyarrow": "15", "pillow": "10", "scipy": "1.11", "rich": "13.7",
    "typer": "0.12", "jinja2": "3.1", "matplotlib": "3.8",
}  # fmt: skip
OPTIONAL = {
    "tensorboard": "track", "av": "video", "datasets": "hub", "webdataset": "hub", "ray": "ray", "fsspec": "remote",
    "s3fs": "remote", "aiohttp": "remote", "wandb": "track", "mlflow-skinny": "track", "duckdb": "query",
    "onnx": "export",
    "onnxscript": "export", "onnxruntime": "export", "pandas": "frames", "foolbox": "peers", "mkdocs-material": "docs",
    "nbclient": "docs", "ipykernel": "docs",
}  # fmt: skip
# where the module has another name
MODULES = {"pyyaml": "yaml", "pillow": "PIL", "mlflow-skinny": "mlflow", "mkdocs-material": "material"}
COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}


class Check(NamedTuple):
    """One line of the doctor's."""

    state: Literal["ok", "note", "broken"]
    what: str
    detail: str


@verbs.register("doctor")
def doctor(
    full: Annotated[bool, typer.Option("--full", help="import every package and compute on every device")] = False,
) -> None:
    """Check this installation: versions, devices, optional packages.

    The quick check imports nothing; [bold]--full[/bold] imports every package and computes on every device (some
    seconds). Exit code 1 if something is broken.
    """
    healthy = True
    for check in [*quick_checks(), *(full_checks() if full else ())]:
        line = escape(f"{check.what:<14} {check.detail}")
        console.print(f"[{COLOURS[check.state]}]{check.state:<7}[/{COLOURS[check.state]}] {line}", highlight=False)
        healthy &= check.state != "broken"
    if healthy and not full:
        console.print("packages were not imported; hardtack doctor --full does so", highlight=False, style="dim")
    raise typer.Exit(0 if healthy else 1)


# ---------------------------------------------------------------- without importing anything


def quick_checks() -> Iterator[Check]:
    yield Check("ok", "hardtack", f"{__version__}, Python {platform.python_version()}")
    for package, lowest in REQUIRED.items():
        yield _installed(package, lowest)
    for package, extra in OPTIONAL.items():
        present = importlib.util.find_spec(MODULES.get(package, package)) is not None
        detail = "present" if present else f"optional: pip install 'hardtack[{extra}]'"
        yield Check("ok" if present else "note", package, detail)
    yield from _drivers()
    pages = docs_folder()
    found = pages.is_dir()
    detail = str(pages) if found else f"{pages} is missing: install hardtack again"
    yield Check("ok" if found else "note", "docs", detail)
    writable = os.access(".", os.W_OK)
    detail = "run folders can be written here" if writable else "this folder is not writable"
    yield Check("ok" if writable else "broken", "folder", detail)


def _installed(package: str, lowest: str) -> Check:
    install = f"{sys.executable} -m pip install '{package}>={lowest}'"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Check("broken", package, f"not installed: {install}")
    if importlib.util.find_spec(MODULES.get(package, package)) is None:
        return Check("broken", package, f"{version} is recorded but its files are missing: {install}")
    if _numbers(version) < _numbers(lowest):
        return Check("broken", package, f"{version} is older than {lowest}: {install}")
    return Check("ok", package, version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _drivers() -> Iterator[Check]:
    """GPUs that the NVIDIA driver reports; whether torch can use them is a question for the full check."""
    command = shutil.which("nvidia-smi")
    query = [command or "", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False) if command else None
    if done is None or done.returncode or not done.stdout.strip():
        yield Check("note", "device", f"cpu, {os.cpu_count()} cores; the NVIDIA driver reports no GPU")
        return
    for number, line in enumerate(done.stdout.strip().splitlines()):
        name, memory, driver = (part.strip() for part in line.split(","))
        yield Check("ok", f"gpu {number}", f"{name}, {memory}, driver {driver}")


# ---------------------------------------------------------------- with everything imported


def full_checks() -> Iterator[Check]:
    """The checks of `print_full_checks`, run in a process of its own."""
    code = "from hardtack.commands.doctor import print_full_checks; print_full_checks()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        current = "python"
        for line in process.stdout:
            state, what, detail = json.loads(line)
            if state == "begin":
                current = what
            else:
                yield Check(state, what, detail)
    if process.returncode:
        yield Check("broken", current, f"the process ended with code {process.returncode} during this check")


def print_full_checks() -> None:
    """Import every package, then compute on every device; one JSON line for each step."""

    def tell(state: str, what: str, detail: str = "") -> None:
        print(json.dumps([state, what, detail]), flush=True)

    for package in REQUIRED:
        tell("begin", package)
        try:
            importlib.import_module(MODULES.get(package, package))
            tell("ok", package, "imported")
        except Exception as error:  # a broken binary raises anything
            tell("broken", package, f"{type(error).__name__}: {error}")
            return
    tell("begin", "device")
    for check in _devices():
        tell(*check)


def _devices() -> Iterator[Check]:
    """Each device that torch sees must multiply two matrices rightly."""
    import torch

    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    a = torch.arange(64.0).reshape(8, 8)
    for name in names:
        right = torch.equal((a.to(name) @ a.T.to(name)).cpu(), a @ a.T)
        facts = torch.cuda.get_device_properties(name) if name != "cpu" else None
        about = f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB" if facts else f"{torch.get_num_threads()} threads"
        state: Literal["ok", "broken"] = "ok" if right else "broken"
        yield Check(state, name, f"{about}, {'computes' if right else 'computes WRONG results'}")
    if len(names) == 1 and shutil.which("nvidia-smi"):
        yield Check("note", "cuda", f"torch {torch.__version__} sees no CUDA device")
