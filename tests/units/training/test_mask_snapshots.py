"""Masks that training leaves to be looked at: of the right images, as the occluder hides them, whatever was killed."""

import numpy as np
import pytest
import torch

import hardtack as ht
from hardtack.data import load_data
from hardtack.models import load_occluder
from hardtack.training import Trainer
from tiny_runs import tiny_recipe, write_data

RSPC = {"name": "rspc", "weight": 0.1, "share": 0.25, "occluder": {"lr": 0.01}}
TRAIN = {"epochs": 3, "batch_size": 8}


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz", train=60)


def kept(folder):
    return {path.name: dict(np.load(path)) for path in sorted(folder.glob("masks/*"))}


def test_every_judged_epoch_leaves_the_occluders_masks_on_the_first_validation_images(tmp_path, data):
    recipe = tiny_recipe(tmp_path / "run", data, objective=RSPC, train=TRAIN, validation={"every": 2})
    found = kept(ht.train(recipe, quiet=True))
    assert list(found) == ["epoch_0002.npz", "epoch_0003.npz"]
    last, held_out = found["epoch_0003.npz"], load_data(recipe.data, "validation")
    x = held_out.batch(torch.arange(8))[0]
    assert np.array_equal(last["images"], (255 * x).round().byte().permute(0, 2, 3, 1).numpy())
    shown = torch.tensor(last["images"]).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = load_occluder(recipe.folder / "checkpoints" / "last.occluder.safetensors")(shown) > 0.5
    assert last["masks"].dtype == bool and np.array_equal(last["masks"], expected.numpy())
    assert last["masks"].shape == (8, 2, 2) and last["masks"].any(axis=(1, 2)).all()


@pytest.mark.parametrize("objective", ["standard", {**RSPC, "choose": "random"}])
def test_nothing_is_kept_where_nothing_is_learned_to_be_hidden(tmp_path, data, objective):
    folder = ht.train(tiny_recipe(tmp_path / "run", data, objective=objective, train=TRAIN), quiet=True)
    assert not (folder / "masks").exists()


def test_without_a_validation_split_the_training_images_are_shown(tmp_path, data):
    sections = {"data": {"name": f"npz:{data}", "workers": 0, "validation": 0}, "train": {"epochs": 1, "batch_size": 8}}
    folder = ht.train(tiny_recipe(tmp_path / "run", data, objective=RSPC, **sections), quiet=True)
    assert np.array_equal(kept(folder)["epoch_0001.npz"]["images"], np.load(data)["x_train"][:8])


class Interrupted(Exception):
    pass


def test_a_killed_run_ends_with_the_same_masks_and_one_begun_anew_keeps_none_of_the_old(tmp_path, data, monkeypatch):
    recipe = tiny_recipe(tmp_path / "run", data, objective=RSPC, train={**TRAIN, "checkpoint_every_s": -1.0})
    expected = kept(ht.train(recipe, quiet=True))
    (tmp_path / "run").rename(tmp_path / "once")
    step = Trainer.step

    def failing(self, batch):
        if self.progress.done == 8:
            raise Interrupted
        return step(self, batch)

    (tmp_path / "run" / "masks").mkdir(parents=True)
    (tmp_path / "run" / "masks" / "epoch_0009.npz").write_bytes(b"of a longer run")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", failing)
        with pytest.raises(Interrupted):
            ht.train(recipe, quiet=True)
    found = kept(ht.train(recipe, quiet=True))
    assert found.keys() == expected.keys() and len(found) == 3
    assert all(np.array_equal(found[name]["masks"], expected[name]["masks"]) for name in expected)
