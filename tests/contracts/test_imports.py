"""The shape of the source: which room may import which, how long a file may be, what is packaged."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hardtack"

BASE = {"errors", "registry", "files", "randomness", "progress", "capture", "config", "runtime"}
INPUTS = {"data", "threats", "models"}
ALLOWED = {
    # the base stands on itself; a registry imports its rooms by name, on first use
    "errors": set(),
    "files": set(),
    "randomness": set(),
    "progress": set(),
    "capture": {"errors"},
    "registry": {"errors"},
    "config": {"errors", "files", "registry"},
    "runtime": {"errors"},
    "data": BASE,
    "threats": BASE,
    "models": BASE,
    "attacks": BASE | INPUTS,
    "objectives": BASE | INPUTS | {"attacks"},
    "training": BASE | INPUTS | {"attacks", "objectives"},
    "results": BASE,
    "evaluation": BASE | INPUTS | {"attacks", "results"},
    "analysis": BASE | INPUTS | {"attacks", "results", "evaluation"},
    "report": BASE | {"results"},
}
FREE = {
    "__init__", "__main__", "api", "analyzing", "cli", "command", "demo",
    "craft", "corrupting", "describe", "listing", "doctor", "recipes",
    "verify", "selftest", "plan", "plan_training", "comparing", "exporting", "importing", "robustbench", "protocols",
}  # fmt: skip
WITHOUT_TORCH = {"results", "report"}
TORCH = {"torch", "torchvision", "timm"}
# base modules that themselves import torch and so are closed to the rooms that must not
TORCH_BASE = {"randomness", "capture", "runtime"}
LONGEST = 400


def room_of(path, source=SOURCE):
    return path.relative_to(source).parts[0].removesuffix(".py")


def imports(path, source=SOURCE):
    """Dotted names of every module a file imports, at whatever depth; `from a import b` gives both."""
    package = ("hardtack", *path.relative_to(source).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, node.module or "")).strip(".")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def wrong_arrows(source=SOURCE):
    """`file: imported` for every import that points the wrong way."""
    wrong = []
    rooms = {room_of(path, source) for path in source.rglob("*.py")} - {"__init__"}
    for path in sorted(source.rglob("*.py")):
        room = room_of(path, source)
        if room in FREE:
            continue
        if room not in ALLOWED:
            wrong.append(f"{room}: a room this test does not know")
            continue
        closed = rooms - ALLOWED[room] - {room} | (TORCH_BASE if room in WITHOUT_TORCH else set())
        for name in imports(path, source):
            top, inner = (*name.split("."), "")[:2]
            heavy = room in WITHOUT_TORCH and top in TORCH
            if heavy or (top == "hardtack" and inner in closed):
                wrong.append(f"{path.relative_to(source)}: {name}")
    return wrong


def test_imports_point_one_way():
    assert wrong_arrows() == []


@pytest.mark.parametrize(
    "where, line",
    [
        ("training/trainer.py", "from hardtack.evaluation import evaluate"),
        ("training/trainer.py", "import hardtack.evaluation.suite"),
        ("training/trainer.py", "def late():\n    from hardtack import evaluation"),
        ("training/trainer.py", "from ..evaluation import evaluate"),
        ("data/loading.py", "from hardtack.models import load_model"),
        ("models/build.py", "from hardtack.threats import Threat"),
        ("threats/balls.py", "from hardtack.data import batches"),
        ("attacks/ascent.py", "from hardtack.objectives import Trades"),
        ("objectives/trades.py", "from hardtack.training import Trainer"),
        ("evaluation/suite.py", "from hardtack.training import Trainer"),
        ("analysis/sparsity.py", "from hardtack.training import Trainer"),
        ("evaluation/suite.py", "from hardtack.analysis import analyze"),
        ("report/page.py", "from hardtack.analysis import analyze"),
        ("report/page.py", "from hardtack.evaluation import evaluate"),
        ("report/page.py", "from hardtack.runtime import Runtime"),
        ("results/store.py", "import torch.nn as nn"),
        ("config.py", "from hardtack.threats import Threat"),
        ("errors.py", "from hardtack.registry import Registry"),
        ("attacks/ascent.py", "from hardtack.api import attack"),
        ("telepathy/waves.py", "import math"),
    ],
)
def test_a_planted_arrow_is_caught(tmp_path, where, line):
    for path in SOURCE.rglob("*.py"):
        copy = tmp_path / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    assert wrong_arrows(tmp_path) == []
    planted = tmp_path / where
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(line)
    assert wrong_arrows(tmp_path)


def test_results_and_report_load_without_torch():
    code = "import sys, hardtack.results, hardtack.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_file_is_too_long_and_none_is_a_drawer():
    for path in SOURCE.rglob("*.py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= LONGEST, f"{path.relative_to(SOURCE)} has {lines} lines"
        assert path.stem not in ("utils", "util", "helpers", "helper", "misc", "common"), path


def test_no_star_imports():
    for path in SOURCE.rglob("*.py"):
        assert not [name for name in imports(path) if name.endswith(".*")], path


def test_every_package_is_packaged():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    packages = {".".join(("hardtack", *folder.relative_to(SOURCE).parts)) for folder in folders}
    assert set(settings["packages"]) == packages | {"hardtack.recipe_files"}
    for folder in folders:
        assert (folder / "__init__.py").is_file(), f"{folder.relative_to(SOURCE)} has no __init__.py"
    assert (ROOT / settings["package-dir"]["hardtack.recipe_files"]).is_dir()
