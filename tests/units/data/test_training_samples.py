"""A whole run on repeated, added, synthetic and decode-cropped images, stopped and repeated: the same to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hardtack as ht
from hardtack.training import Trainer
from tiny_runs import tiny_recipe, write_data


class Interrupted(Exception):
    """A crash, as far as the run can tell."""


def train(base: Path, data: dict[str, Any], augment: dict[str, Any]) -> bytes:
    folder = base / "run"
    recipe = tiny_recipe(
        folder, base / "data.npz", data=data, augment=augment, objective={"name": "standard"},
        train={"epochs": 2, "batch_size": 6, "checkpoint_every_s": -1.0},
    )  # fmt: skip
    ht.train(recipe, quiet=True)
    return (folder / "checkpoints" / "last.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["mixed", "cropped"])
def test_stopped_and_repeated_ends_with_the_same_weights(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"npz:{write_data(tmp_path / 'data.npz', train=30)}"
    made = np.random.default_rng(1).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "made.npz", images=made, labels=np.arange(5) % 4)
    data: dict[str, Any] = {"name": name, "validation": 0.2, "workers": 0, "repeats": 2}
    data["extra"] = [{"name": f"random_network:{name}", "copy": True}]
    augment: dict[str, Any] = {"flip": 0.5, "resized_crop": [0.3, 1.0], "resized_crop_interpolation": "bicubic"}
    if kind == "mixed":
        data["synthetic"] = {"name": f"npz:{tmp_path / 'made.npz'}", "share": 0.5}
        augment |= {"mixup": 0.8, "cutmix": 1.0, "policy": "rand-m9-mstd0.5-inc1"}
    else:
        data["image_size"] = 8
        augment["resized_crop_at"] = "decode"
    whole = train(tmp_path, data, augment)
    (tmp_path / "run").rename(tmp_path / "kept")

    steps, original, taken = 7, Trainer.step, []

    def step(self: Trainer, batch: Any) -> Any:
        if len(taken) == steps:
            raise Interrupted
        taken.append(1)
        return original(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", step)
        with pytest.raises(Interrupted):
            train(tmp_path, data, augment)
    assert train(tmp_path, data, augment) == whole
