"""What type checkers and editors see of `import hardtack as ht`: every name with its signature and settings."""

import dataclasses
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import ConfigDict, TypeAdapter

import hardtack as ht
from hardtack.base import registry
from hardtack.commands import calls
from hardtack.evaluation import EvaluationConfig, keywords
from hardtack.evaluation.job import EvaluationJob
from hardtack.training import Recipe
from hardtack.training.keywords import ObjectiveName, RecipeSettings

ROOT = Path(__file__).parents[2]
GOOD = """
import numpy as np
import torch
import hardtack as ht

x, y = torch.rand(4, 3, 32, 32), torch.arange(4)
model = ht.wrap(torch.nn.Flatten(), num_classes=10, image_size=32)
measured = ht.evaluate(model, (x, y), suite="autoattack", threat="linf:8/255", tier="fast", n=2, workers=2)
share: float = measured.clean_accuracy + (measured.robust_accuracy or 0.0)
ht.evaluate(lambda x: x.mean((2, 3)), (np.zeros((4, 8, 8)), [0, 1, 2, 3]), attack={"name": "apgd", "steps": 5})
ht.evaluate(model, "digits", suite="my_suite", settings={"my_suite.pixels": 2})
first = ht.evaluate_run("runs/x", suite="pgd,sweep", checkpoint="last", on="ray")[0].clean_accuracy
value = ht.analyze(model, (x, y), "jacobian", top=3).of("effective_rank")
sizes = ht.attack(model, x, y, "my_attack", threat=["linf:8/255", "l2:0.5"], details=True)[0].size
ht.train("digits/trades", train={"epochs": 3}, settings={"optimiser.lr": 1e-3}, objective="mine").joinpath("x")
loss = ht.objective("trades", model, threat="linf:8/255", beta=6)(x, y)["loss"]
same: int = ht.export(model, (x, y), format="hub").comparisons["timm"][0].same
print(ht.export("runs/x", format="onnx", opset=18).path)
with ht.tap(model) as taps:
    taps.features
print(ht.Threat.parse("linf:8/255").radius, ht.load_data("digits", "test").num_classes, ht.load_run("x").image_size)
"""
BAD = {
    'ht.attak(model, x, y)': "attak",
    'ht.evaluate(model, (x, y), suit="pgd")': "suit",
    'ht.evaluate(model, (x, y), tier="quick")': "tier",
    'ht.evaluate(model, (x, y), batch_size="many")': "batch_size",
    'ht.evaluate(model)': "data",
    'ht.evaluate_run("runs/x", checkpont="last")': "checkpont",
    'ht.evaluate_run("runs/x", split="tset")': "split",
    'ht.evaluate(model, (x, y)).robust_acuracy': "robust_acuracy",
    'ht.attack(model, x, y, details=True).robust': "robust",
    'ht.train("digits/trades", optimizer={"lr": 1.0})': "optimizer",
    'ht.train("digits/trades", train=3)': "train",
    'ht.load_data("digits", "tset")': "tset",
    'ht.wrap(model, men=0.5)': "men",
    'ht.export("runs/x", format="onx")': "onx",
    'ht.export("runs/x", format="onnx", opsett=18)': "opsett",
}  # fmt: skip
# what other packages say of themselves is not read: that would take half a minute
SETTINGS = """
[mypy]
python_version = 3.11
ignore_missing_imports = True
follow_imports = silent
[mypy-torch.*,torchvision.*,timm.*,numpy.*,scipy.*,pandas.*,sklearn.*,pydantic.*,rich.*,typer.*,click.*,PIL.*,yaml.*]
follow_imports = skip
[mypy-matplotlib.*,pyarrow.*,jinja2.*,ray.*,sympy.*,fsspec.*,datasets.*,duckdb.*,onnx.*,wandb.*,mlflow.*]
follow_imports = skip
"""


def bad_lines():
    """The mistakes below what the good snippet defines, and the number of the first one's line."""
    return GOOD + "\n".join(BAD) + "\n", GOOD.count("\n") + 1


def check_mistakes(found):
    """`found`: line and message of every error in the snippet of mistakes."""
    _, first = bad_lines()
    assert min(found) >= first, f"an error in a correct call: {found}"
    for number, (call, word) in enumerate(BAD.items(), start=first):
        assert word in found.get(number, ""), f"{call}: {found.get(number, 'no error')}"


def test_mypy_accepts_correct_calls_and_refuses_misspelt_ones(tmp_path):
    pytest.importorskip("mypy")
    source, _ = bad_lines()
    tmp_path.joinpath("snippet.py").write_text(source)
    tmp_path.joinpath("mypy.ini").write_text(SETTINGS)
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "--hide-error-context",
            "--cache-dir", ROOT / ".mypy_cache" / "snippets", "snippet.py",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        place, kind, message = (*line.split(": ", 2), "", "")[:3]
        if place.startswith("snippet.py:") and kind == "error":
            number = int(place.split(":")[1])
            found[number] = f"{found.get(number, '')} {message}"
    assert found, done.stdout + done.stderr
    check_mistakes(found)


@pytest.mark.oracle
def test_pyright_accepts_correct_calls_and_refuses_misspelt_ones(tmp_path):
    pytest.importorskip("pyright")
    source, _ = bad_lines()
    tmp_path.joinpath("snippet.py").write_text(source)
    settings = {"extraPaths": [str(ROOT / "src")], "include": ["snippet.py"], "reportUnusedExpression": False}
    tmp_path.joinpath("pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    found: dict[int, str] = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            number = each["range"]["start"]["line"] + 1
            found[number] = f"{found.get(number, '')} {each['message']}"
    check_mistakes(found)


def test_every_name_of_the_package_is_there_for_type_checkers():
    source = Path(ht.__file__).read_text(encoding="utf-8")
    for name, module in ht._MODULES.items():
        assert f"from {module} import {name} as {name}" in source, name
    assert Path(ht.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize(
    "settings, config",
    [
        (keywords.EvaluationSettings, EvaluationConfig),
        (keywords.RunEvaluationSettings, EvaluationJob),
        (RecipeSettings, Recipe),
    ],
)
def test_settings_with_types_are_those_of_the_configuration(settings, config):
    names = {item.name for item in dataclasses.fields(config)}
    assert set(settings.__annotations__) == names, f"add the setting to {settings.__name__} in {settings.__module__}"
    defaults = {name: getattr(config(), name) for name in names}
    with_classes = ConfigDict(arbitrary_types_allowed=True)
    for cls in (settings, *settings.__orig_bases__):
        if isinstance(cls, type):
            cls.__pydantic_config__ = with_classes
    TypeAdapter(settings).validate_python(defaults)  # every default has the type that is said


@pytest.mark.parametrize(
    "names, table",
    [
        (keywords.SuiteName, registry.suites),
        (keywords.AttackName, registry.attacks),
        (calls.AnalysisName, registry.analyses),
        (ObjectiveName, registry.objectives),
    ],
)
def test_names_that_editors_complete_exist(names, table):
    listed = [name for arm in get_args(names) if get_origin(arm) is Literal for name in get_args(arm)]
    assert listed and set(listed) <= set(table.names())


def test_help_shows_every_setting_with_its_default():
    shown = inspect.signature(ht.evaluate).parameters
    assert shown["suite"].default == "pgd" and shown["tier"].default == "verified" and "keywords" not in shown
    assert {item.name for item in dataclasses.fields(EvaluationConfig)} <= set(shown)
    assert inspect.signature(ht.evaluate_run).parameters["checkpoint"].default == "best"


def test_the_nearest_name_is_said():
    with pytest.raises(AttributeError, match="did you mean 'attack'"):
        ht.attak  # noqa: B018


def test_settings_in_a_mapping_are_those_of_keywords():
    image = importlib.import_module("torch").rand(4, 3, 8, 8)
    model = lambda x: x.mean((2, 3))  # noqa: E731
    one = ht.evaluate(model, (image, [0, 1, 2, 0]), attack={"steps": 2}, threat="linf:0.1", quiet=True)
    other = ht.evaluate(
        model, (image, [0, 1, 2, 0]), quiet=True, settings={"attack.steps": 2, "threat": "linf:0.1"}, workers=None
    )
    assert one.id == other.id
    with pytest.raises(ht.UserError, match=r"'attack\.steps' is given as a keyword and in settings"):
        ht.evaluate(model, (image, [0, 1, 2, 0]), attack={"steps": 2}, settings={"attack.steps": 3})
    with pytest.raises(ht.UserError, match="did you mean 'suite'"):
        ht.evaluate(model, (image, [0, 1, 2, 0]), suit="pgd")
