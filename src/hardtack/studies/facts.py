"""Plain numbers about a finished run: its size, its length, and what its training cost."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from hardtack.base.config import read_yaml
from hardtack.base.errors import UserError
from hardtack.results import read_metrics
from hardtack.studies.column import NETWORK_FACTS


def fact_of(folder: Path, name: str) -> float:
    """The fact of this name (see `FACTS` of the columns). Times are of the machine that trained the run."""
    if name in NETWORK_FACTS:
        return _of_network(folder, name)
    lines = read_metrics(folder)
    trained = [line for line in lines if line.get("kind") == "train"]
    if not trained:
        raise UserError(f"{folder} has no metrics of a training")
    if name in ("steps", "epochs"):
        return float(max(line["step" if name == "steps" else "epoch"] for line in trained))
    if name == "best_epoch":
        scored = [line for line in lines if line.get("kind") == "validation" and "score" in line]
        return float(max(scored, key=lambda line: line["score"])["epoch"]) if scored else fact_of(folder, "epochs")
    if name == "mask_variety":
        found = [line[name] for line in trained if name in line]
        if not found:
            raise UserError(f"{folder}: only objective=rspc hides patches and measures mask_variety")
        return float(found[-1])
    per_step = _batch_size(folder) / median(line["images_per_s"] for line in trained if line.get("images_per_s"))
    return per_step if name == "seconds_per_step" else per_step * fact_of(folder, "steps")


def _of_network(folder: Path, name: str) -> float:
    """Parameters, or multiply-adds of one forward pass of an image (papers write FLOPs for them)."""
    import torch

    from hardtack.evaluation.target import load_run
    from hardtack.models.passes import forward_multiply_adds

    model = load_run(folder)
    if name != "billion_multiply_adds":
        count = float(sum(parameter.numel() for parameter in model.parameters()))
        return count / 1e6 if name == "million_parameters" else count
    side = model.image_size or (read_yaml(folder / "config.yaml", alone=True).get("data") or {}).get("image_size")
    if not isinstance(side, int):
        raise UserError(f"{folder}: the network takes images of any size, so that its multiply-adds have no number")
    return forward_multiply_adds(model, torch.zeros(1, 3, side, side)) / 1e9


def _batch_size(folder: Path) -> int:
    train: Any = read_yaml(folder / "config.yaml", alone=True).get("train", {})
    return int(train.get("batch_size", 128))
