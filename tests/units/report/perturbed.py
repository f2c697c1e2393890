"""Runs whose perturbations were analysed beside each other: tiny linear models, real findings."""

from __future__ import annotations

from pathlib import Path

import torch
from run_folders import make_run
from torch import nn

import hardtack as ht
from hardtack.base.runtime import Runtime
from hardtack.evaluation import Provenance
from hardtack.models.from_file import state_sha256


class Linear(nn.Module):
    num_classes = 10

    def __init__(self, seed: int) -> None:
        super().__init__()
        made = torch.randn(10, 3 * 8 * 8, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - 0.5).flatten(1) @ self.weight.T


def perturbed(parent: Path, names: tuple[str, ...], *, beside: bool = True, **settings: object) -> list[Path]:
    """Each run analysed beside all others, or alone."""
    models = [Linear(seed) for seed in range(len(names))]
    x = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(12) % 10
    folders = []
    for place, name in enumerate(names):
        folder = make_run(parent / name, seed=place, examples=False)
        others = {f"other {i}": model for i, model in enumerate(models) if i != place} if beside else {}
        provenance = Provenance(run=name, weights_sha256=state_sha256(models[place]))
        ht.analyze(
            models[place], (x, y), "perturbations", others=others, attack={"steps": 2}, folder=folder,
            provenance=provenance, runtime=Runtime(device="cpu"), quiet=True, **settings,
        )  # fmt: skip
        folders.append(folder)
    return folders
