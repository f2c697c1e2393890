"""The state of a run between two steps, written whole and renamed into place, read without running code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hardtack.base.config import flat, plain
from hardtack.base.errors import UserError
from hardtack.base.files import atomic
from hardtack.training.sharding import split_like, split_moments, whole

if TYPE_CHECKING:
    from hardtack.training.trainer import Trainer

STATE = "checkpoints/state.pt"

# What may differ between a run and its continuation without making it another run.
_FREE = {"output", "runtime.device", "runtime.compile", "runtime.shard", "data.root", "data.workers", "train.log_every",
         "train.checkpoint_every_s", "train.tensorboard", "train.checkpoint_blocks"}  # fmt: skip


def state_of(job: Trainer) -> dict[str, Any]:
    """All that a run is between two steps, beside its recipe."""
    return {
        "recipe": plain(job.recipe),
        "architecture": plain(getattr(job.model, "architecture", {})),
        "done": job.done,
        "best": job.best,
        "best_epoch": job.best_epoch,
        "stopped": job.stopped,
        "history": job.history,
        "window": job.window.sums,
        "objective": whole(dict(job.objective.state_dict())),
        "optimiser": whole(job.optimiser.state_dict()),
        "average": whole(job.average.state()) if job.average is not None else None,
    }


def restore(job: Trainer, state: dict[str, Any]) -> None:
    job.objective.load_state_dict(split_like(state["objective"], job.objective))
    job.optimiser.load_state_dict(state["optimiser"])
    split_moments(job.optimiser)
    for group in job.optimiser.param_groups:  # the state may come from another device
        group["fused"] = job.optimiser.defaults["fused"]
    if job.average is not None:
        average = state["average"]
        job.average.load(average | {"model": split_like(average["model"], job.average.model)})
    job.done, job.best = state["done"], state["best"]
    job.best_epoch, job.stopped, job.history = state["best_epoch"], state["stopped"], state["history"]
    job.window.sums = {name: value.to(job.device) for name, value in state["window"].items()}


def save_state(folder: Path, state: dict[str, Any]) -> None:
    with atomic(folder / STATE) as file:
        torch.save(state, file)


def begun_with(folder: Path) -> dict[str, Any]:
    """The architecture of the model whose state lies in a folder; empty where none does, or none that can be read."""
    try:
        state = torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)
        return dict(state["architecture"])
    except Exception:  # a damaged state is refused where it is loaded
        return {}


def load_state(folder: Path, recipe: dict[str, Any]) -> dict[str, Any] | None:
    """The saved state, or None for a fresh start; refuses a state that another recipe wrote."""
    path = folder / STATE
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        before, now = flat(state["recipe"]), flat(recipe)
    except Exception as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}); delete it to start again") from None
    changed = sorted(key for key in before | now if before.get(key) != now.get(key) and key not in _FREE)
    if changed:
        detail = ", ".join(f"{key}: {before.get(key)} → {now.get(key)}" for key in changed[:4])
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise UserError(f"{folder} holds a run of another recipe ({detail}{more}); give output=… another folder")
    return state
