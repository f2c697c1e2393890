"""Every job finds the same target: one model by its name has the same digest and flags with images and without."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from hardtack.analysis.job import analyze_words
from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.data import decode
from hardtack.evaluation.target import TargetConfig, complete, load_target
from hardtack.models import load_model, save_weights
from hardtack.models.from_file import state_sha256

LINES = ["import torch", "def build(num_classes=10, image_size=32):"]
RANDOM = [*LINES, "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, num_classes))"]
FIXED = [*LINES[:1], "def build(num_classes=10, image_size=32):", "    torch.manual_seed(0)", RANDOM[-1]]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("\n".join(RANDOM))
    (tmp_path / "fixed.py").write_text("\n".join(FIXED))
    return tmp_path


def target(*, with_images=True, run=None, **values):
    return load_target(run, build(TargetConfig, complete(run, values)), with_images=with_images)


@pytest.mark.parametrize("file, flags", [("mine.py", ["untrained"]), ("fixed.py", [])])
def test_a_users_model_has_one_digest_and_one_set_of_flags(home, file, flags):
    model = f"{file}:build"
    seen = target(model=model, data="digits", n=2)
    alone = target(model=model, with_images=False)
    assert (
        [flag["code"] for flag in seen.provenance.flags] == flags == [flag["code"] for flag in alone.provenance.flags]
    )
    assert seen.provenance == alone.provenance and seen.folder == alone.folder
    assert seen.provenance.weights_sha256 == state_sha256(alone.model)
    assert alone.images is None and len(seen.data) == 2


def test_an_analysis_of_random_weights_says_so(home):
    """Sparsity looks at no images, and once carried neither the flag nor the digest."""
    (finding,) = analyze_words(["model=mine.py:build", "sparsity"], quiet=True)
    (result, *_) = finding.results
    assert [flag["code"] for flag in result.flags] == ["untrained"] and result.weights_sha256


def test_a_run_folder_is_the_same_target_with_images_and_without(home):
    model = load_model("vit_digits", num_classes=10, image_size=32, seed=0, depth=1, width=16, heads=2)
    save_weights(home / "run" / "checkpoints" / "best.safetensors", model)
    (home / "run" / "config.yaml").write_text("data: {name: digits}\n")
    seen, alone = (target(run="run", n=2, with_images=wanted) for wanted in (True, False))
    assert seen.provenance == alone.provenance and seen.provenance.weights_sha256
    named = target(run="run/checkpoints/best.safetensors", with_images=False)
    assert named.folder == alone.folder, "a checkpoint file stands for its run"
    assert torch.equal(next(seen.model.parameters()), next(alone.model.parameters()))


def test_without_images_a_model_is_enough_and_with_them_it_is_not(home):
    with pytest.raises(UserError, match="model and data"):
        target(model="vit_digits")
    with pytest.raises(UserError, match="a run folder or a model"):
        target(with_images=False)


def test_weights_and_digest_are_of_one_version_while_training_goes_on(home, monkeypatch):
    """The trainer replaces the checkpoint between the moment it is read and the moment its digest is asked for."""
    from hardtack.evaluation import target as module

    def network(seed):
        return load_model("vit_digits", num_classes=10, image_size=32, seed=seed, depth=1, width=16, heads=2)

    path = home / "run" / "checkpoints" / "best.safetensors"
    digests = [save_weights(path, network(0))]
    (home / "run" / "config.yaml").write_text("data: {name: digits}\n")
    reading, replaced = module.rebuild, []

    def rebuild(file):
        model = reading(file)
        if len(replaced) < limit:
            replaced.append(save_weights(path, network(len(replaced) + 1)))
        return model

    limit = 2
    monkeypatch.setattr(module, "rebuild", rebuild)
    found = target(run="run", with_images=False)
    assert found.provenance.weights_sha256 == replaced[-1] != digests[0]
    assert torch.equal(next(found.model.parameters()), next(network(2).parameters()))
    limit = 100
    with pytest.raises(UserError, match="was replaced 5 times while it was read"):
        target(run="run", with_images=False)


@pytest.mark.parametrize("kind", ["parquet", "folder"])
def test_only_the_images_that_are_measured_are_decoded_and_each_once(home, monkeypatch, kind):
    """Images of another size than the model's were decoded twice, and brought to its size the second time."""
    model = load_model("vit_digits", num_classes=2, image_size=16, seed=0, depth=1, width=16, heads=2)
    save_weights(home / "run" / "checkpoints" / "best.safetensors", model)
    pictures = [Image.fromarray(np.full((32, 32, 3), number, np.uint8)) for number in range(40)]
    (home / "set" / "a").mkdir(parents=True)
    for number, picture in enumerate(pictures):
        picture.save(home / "set" / "a" / f"{number:02d}.png")
    (home / "set" / "b").mkdir()
    pictures[0].save(home / "set" / "b" / "0.png")
    stored = [{"bytes": file.read_bytes()} for file in sorted((home / "set" / "a").iterdir())]
    pq.write_table(pa.table({"image": stored, "label": [n % 2 for n in range(40)]}), home / "test.parquet")
    decoded = []
    original = decode.rgb_array
    monkeypatch.setattr(decode, "rgb_array", lambda image: decoded.append(original(image)[0, 0, 0]) or original(image))
    name = {"parquet": "parquet:test.parquet", "folder": "folder:set"}[kind]
    loaded = target(run="run", data=name, n=10)
    assert loaded.data.image_shape == (3, 16, 16) and len(loaded.data) == 10
    assert len(set(decoded)) <= 10 and len(decoded) <= 10 + 2, "the first image is also decoded for its size"
    explicit = target(run="run", data={"name": name, "image_size": 16}, n=10)
    assert torch.equal(loaded.data.batch(range(10)).x, explicit.data.batch(range(10)).x)
    assert loaded.data.description == explicit.data.description
