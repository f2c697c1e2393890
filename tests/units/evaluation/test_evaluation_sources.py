"""The files that decide an evaluation: all of them are named, or none."""

from pathlib import Path

import pytest

from hardtack.base.config import nested
from hardtack.evaluation.sources import evaluation_sources
from hardtack.models import load_model, save_weights


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = load_model("vit_digits", num_classes=10, image_size=32, seed=0, depth=1, width=16, heads=2)
    save_weights(tmp_path / "run" / "checkpoints" / "last.safetensors", model)
    (tmp_path / "run" / "config.yaml").write_text("data: {name: digits}\n")
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    (tmp_path / "mine.py").write_text("")
    return tmp_path


def sources(run, **words):
    found = evaluation_sources(run, nested(words))
    return found and {str(path) for path in found.files}


def test_a_run_is_its_settings_its_checkpoint_and_its_data(home):
    found = sources("run", suite="pgd", threat="linf:8/255")
    names = {Path(path).name for path in found}
    assert "digits.npz" in names and "run/config.yaml" in found
    assert {f"run/checkpoints/{name}.safetensors" for name in ("best", "last")} <= found, "best is looked for first"
    assert "run/checkpoints/last.safetensors.sha256" in found


def test_data_of_another_name_and_where_they_are_looked_for(home):
    found = sources("run", data="folder:pictures", n=3)
    assert {"data/pictures", "pictures"} <= found
    found = sources("run", data="folder:pictures", **{"data.root": str(home)})
    assert str(home / "pictures") in found and "pictures" not in found
    found = sources("run", data="cifar10", **{"data.root": "x"})
    assert {"x/cifar-10-batches-py", "x/cifar-10-python.tar.gz", "x/batches.meta", "x/test_batch"} <= found


def test_a_named_model_with_weights(home):
    found = sources(None, model="vit_digits", data="digits", **{"model.weights": "run"})
    assert "run/checkpoints/last.safetensors" in found
    found = evaluation_sources(None, nested({"model": "vit_digits", "data": "digits", "model.weights": "run"}))
    assert found.folder == Path("runs/vit_digits")
    assert evaluation_sources("run", {"output": "elsewhere"}).folder == Path("elsewhere")


@pytest.mark.parametrize(
    "words",
    [
        {"model": "vit_digits"},  # weights that are drawn at random
        {"model": "timm:vit_tiny_patch16_224", "model.pretrained": True},
        {"model": "mine.py:build"},
        {"model": "mine.py:build", "model.weights": "run"},
        {"model": "vit_digits", "model.weights": "run", "data": "wds/pictures"},
        {"model": "vit_digits", "model.weights": "run", "data": "folder:s3://bucket/pictures"},
        {"model": "vit_digits", "model.weights": "run", "data": "parquet:pictures/*.parquet"},
        {"model": "vit_digits", "model.weights": "run", "attack.transfer": "run"},
        {"model": "vit_digits", "model.weights": "run", "attack.bpda": "mine.py:function"},
        {"model": "vit_digits", "model.weights": "run", "suite": "corruptions", "files": "pictures"},
    ],
)
def test_what_is_decided_by_other_files_has_no_known_sources(home, words):
    assert sources(None, **{"data": "digits", **words}) is None
