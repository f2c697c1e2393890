"""A network is built without waiting for a compiler, and not at all for a file that cannot fill it."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from hardtack.base.errors import UserError
from hardtack.models import facts, load_model, rebuild, save_weights
from hardtack.models.catalog import is_usual, make_body
from hardtack.models.files import METADATA_KEY
from hardtack.models.stored_architecture import SPARE_NUMBERS

REBUILD = """
import sys
from hardtack.models import rebuild
rebuild(sys.argv[1])
loaded = {"torch._dynamo", "torch._inductor", "timm", "sympy", "pandas", "triton"} & set(sys.modules)
assert not loaded, loaded
"""


def described(path, model, **changes):
    """A file with few tensors, whose description is the model's but for `changes`."""
    about = {"architecture": {**model.architecture, "num_classes": 10, "image_size": None, **changes}}
    save_file({"head.weight": torch.zeros(2, 2)}, path, metadata={METADATA_KEY: json.dumps(about)})
    return path


@pytest.fixture(scope="module")
def model():
    return load_model("preact_resnet18_cifar", num_classes=10, image_size=32, seed=0)


def test_a_built_in_network_is_rebuilt_without_a_compiler(model, tmp_path):
    save_weights(tmp_path / "a.safetensors", model)
    code = [sys.executable, "-c", REBUILD, str(tmp_path / "a.safetensors")]
    done = subprocess.run(code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(rebuild(tmp_path / "a.safetensors")(x), model(x))


def test_a_large_network_is_not_built_for_a_file_of_few_tensors(model, tmp_path, monkeypatch):
    large, row = max(facts.known().items(), key=lambda item: item[1].parameters)
    assert row.parameters > SPARE_NUMBERS
    options = usual_options(large)
    monkeypatch.setattr("hardtack.models.build.make_body", None)  # nothing is built to find out
    theirs = {"name": large, "num_classes": row.num_classes, "image_size": row.image_size}
    with pytest.raises(UserError, match="far larger than the 1 tensors in it; it was not built"):
        rebuild(described(tmp_path / "a.safetensors", model, options=options, **theirs))


@pytest.mark.parametrize("options", [{"depth": 40_000}, {"width": 60_000, "heads": 1}])
def test_unusual_settings_are_built_without_numbers_first(options, tmp_path):
    small = load_model("vit_digits", seed=0)
    file = described(tmp_path / "a.safetensors", small, options={**small.architecture["options"], **options})
    with pytest.raises(UserError, match="far larger"):
        rebuild(file)


def test_settings_are_usual_only_if_all_are(model):
    assert is_usual("preact_resnet18_cifar", model.architecture["options"])
    digits = load_model("vit_digits", seed=0).architecture["options"]
    assert is_usual("vit_digits", json.loads(json.dumps(digits)))
    assert not is_usual("vit_digits", {**digits, "depth": digits["depth"] + 1})
    assert not is_usual("vit_digits", {key: value for key, value in digits.items() if key != "depth"})
    assert not is_usual("vit_digits", {**digits, "another": 1})


def usual_options(name):
    with torch.device("meta"), facts.uninitialised():
        return make_body(name, num_classes=10, options={}).options
