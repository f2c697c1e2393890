"""The shape of the source: which room may import which, how long a file may be, what is packaged."""

import ast
import functools
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hardtack"

ROOMS = {
    # room: the rooms it may import, besides itself; `report` is open to analyses for their charts
    "base": set(),
    "engine": {"base"},
    "data": {"base", "engine"},
    "threats": {"base"},
    "models": {"base"},
    "attacks": {"base", "data", "threats", "models"},
    "objectives": {"base", "data", "threats", "models", "attacks"},
    "training": {"base", "data", "threats", "models", "attacks", "objectives"},
    "results": {"base"},
    "report": {"base", "results"},
    "evaluation": {"base", "data", "threats", "models", "attacks", "engine", "results"},
    "surrogates": {"base", "data", "threats", "models", "attacks", "engine", "results", "evaluation"},
    "exports": {"base", "data", "models", "evaluation", "results", "report"},
    "analysis": {"base", "data", "threats", "models", "attacks", "engine", "results", "evaluation", "report"},
}
FREE = {"studies", "commands"}  # may import anything; nobody imports them, but each other and the two files of the root
ROOT_FILES = {"__init__", "__main__"}
# the modules of the base, each of which may import those before it
BASE_ORDER = (
    "errors", "printable", "file_state", "files", "limits", "digests", "receipts", "arrays", "lock",
    "registry", "annotations", "layers", "config", "trust", "randomness", "progress", "capture", "runtime", "cost",
    "instruments", "new_kernels",
)  # fmt: skip
WITHOUT_TORCH = {"results", "report"}
TORCH = {"torch", "torchvision", "timm"}
# base modules that themselves import torch and so are closed to the rooms that must not
TORCH_BASE = {"randomness", "capture", "runtime", "cost", "instruments", "new_kernels"}
LONGEST = 400


def room_of(path, source=SOURCE):
    return path.relative_to(source).parts[0].removesuffix(".py")


@functools.lru_cache(maxsize=2000)
def import_statements(text):
    """Every import in a file's text, at whatever depth, and whether it stands under `if TYPE_CHECKING:`."""
    nodes = list(ast.walk(ast.parse(text)))
    tests = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    never_run = {inner for node in tests for inner in ast.walk(node)}
    return [(node, node in never_run) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path, source=SOURCE, *, for_types=True):
    """Dotted names of every module a file imports, at whatever depth; `from a import b` gives both.

    Without `for_types`, imports under `if TYPE_CHECKING:` are left out: they are never run.
    """
    package = ("hardtack", *path.relative_to(source).parts[:-1])
    for node, never_run in import_statements(path.read_text(encoding="utf-8")):
        if never_run and not for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, node.module or "")).strip(".")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def wrong_arrows(source=SOURCE):
    """`file: imported` for every import that points the wrong way."""
    wrong = []
    for path in sorted(source.rglob("*.py")):
        room = room_of(path, source)
        if room in FREE | ROOT_FILES:
            continue
        if room not in ROOMS:
            wrong.append(f"{path.relative_to(source)}: a room this test does not know")
            continue
        for name in imports(path, source):
            top, inner, module = (*name.split("."), "", "")[:3]
            if room in WITHOUT_TORCH and top in TORCH:
                wrong.append(f"{path.relative_to(source)}: {name}")
            if top != "hardtack" or not inner or inner.startswith("__"):
                continue
            allowed = inner == room or inner in ROOMS[room]
            if room in WITHOUT_TORCH and inner == "base" and module in TORCH_BASE:
                allowed = False
            if room == "base" and inner == "base" and module:
                allowed = not _is_later(module, path.stem)
            if room == "analysis" and inner == "report" and path.stem != "chart":
                allowed = False
            if not allowed:
                wrong.append(f"{path.relative_to(source)}: {name}")
    return wrong


def _is_later(module, importer):
    order = {name: place for place, name in enumerate(BASE_ORDER)}
    return order[module] >= order[importer] if module in order and importer in order else False


def import_cycles(source=SOURCE):
    """Groups of modules that import each other, at whatever depth: late imports count too."""
    files = {_dotted(path, source): path for path in source.rglob("*.py")}
    edges = {}
    for name, path in files.items():
        found = set()
        for imported in imports(path, source, for_types=False):
            parent = imported.rpartition(".")[0]
            found |= {imported} if imported in files else {parent} & files.keys()
        # `from a import b` gives a and a.b: where b is a module, a itself is not what is wanted
        edges[name] = {one for one in found if not any(other.startswith(f"{one}.") for other in found)} - {name}
    return [sorted(group) for group in _strong(edges) if len(group) > 1]


def _dotted(path, source):
    parts = ("hardtack", *path.relative_to(source).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def _strong(edges):
    """Strongly connected components (Tarjan), without recursion."""
    index, low, stack, groups = {}, {}, [], []
    for root in edges:
        work = [(root, iter(sorted(edges[root])))] if root not in index else []
        while work:
            node, others = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
            for other in others:
                if other not in index:
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    groups.append(stack[stack.index(node) :])
                    del stack[stack.index(node) :]
    return groups


def test_imports_point_one_way():
    assert wrong_arrows() == []


@pytest.fixture(scope="module")
def emptied(tmp_path_factory):
    """The folders and files of the source, without a line in them."""
    folder = tmp_path_factory.mktemp("source")
    for path in SOURCE.rglob("*.py"):
        copy = folder / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    assert wrong_arrows(folder) == []
    return folder


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
        ("report/page.py", "from hardtack.base.runtime import Runtime"),
        ("results/store.py", "import torch.nn as nn"),
        ("base/config.py", "from hardtack.threats import Threat"),
        ("base/errors.py", "from hardtack.base.registry import Registry"),
        ("attacks/ascent.py", "from hardtack.commands.train import train"),
        ("telepathy/waves.py", "import math"),
    ],
)
def test_a_planted_arrow_is_caught(emptied, where, line):
    planted = emptied / where
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(line)
    try:
        assert [arrow.split(":")[0] for arrow in wrong_arrows(emptied)][:1] == [where]
    finally:
        planted.write_text("") if (SOURCE / where).exists() else planted.unlink()


def test_no_modules_import_each_other():
    assert import_cycles() == []


def test_a_planted_cycle_is_caught(tmp_path):
    (tmp_path / "base").mkdir()
    for name, line in (
        ("a", "def late():\n    from hardtack.base import b"),
        ("b", "from hardtack.base.a import late"),
    ):
        (tmp_path / "base" / f"{name}.py").write_text(line)
    (tmp_path / "base" / "__init__.py").write_text("")
    assert import_cycles(tmp_path) == [["hardtack.base.a", "hardtack.base.b"]]


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
    assert settings["packages"]["find"] == {"where": ["src"], "exclude": ["hardtack.docs_files*"]}
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        assert (folder / "__init__.py").is_file(), f"{folder.relative_to(SOURCE)} has no __init__.py"
    assert (SOURCE / "recipe_files" / "digits" / "trades.yaml").is_file()
