"""The state of a run between two steps. It is written whole and renamed into place, and read without running code."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hardtack.base.config import flat, plain
from hardtack.base.errors import UserError
from hardtack.base.files import atomic
from hardtack.base.limits import shorten
from hardtack.base.lock import JobLock
from hardtack.objectives.contract import Objective
from hardtack.training.averaging import Average
from hardtack.training.sharding import split_like, split_moments, whole
from hardtack.training.tracking import Window

STATE = "checkpoints/state.pt"
_MEND = "choose another folder with output=…, or delete this file to train from the beginning"

_EPOCHS = "train.epochs"

# Settings that earlier states do not have, and what training did then.
_ADDED = {
    "data.skip_damaged": False, "data.test_list": None, "augment.color_jitter_with_policy": True,
    "augment.erase_after_mixing": False, "augment.mix_mode": "image", "augment.mix_batch": None,
    "objective.clean_pass": False, "objective.fill": "zero",
}  # fmt: skip
_GIVEN = {"data.name": "images", "model.name": "module"}  # what a call in Python may bring along

# Settings that may change between a run and its continuation.
_MAY_CHANGE = {
    "output", "runtime.device", "runtime.compile", "runtime.shard", "data.root", "data.workers", "train.log_every",
    "train.checkpoint_every_s", "train.tensorboard", "train.track", "train.checkpoint_blocks",
}  # fmt: skip


@dataclass
class Progress:
    """How far a run is."""

    done: int = 0  # optimiser steps
    best: float | None = None  # validation score
    best_epoch: int = 0
    stopped: bool = False  # before the last epoch, by train.patience or a callback
    asked_to_stop: bool = False  # by a callback, in this epoch
    history: list[dict[str, float]] = field(default_factory=list)  # the scores of every validation
    extended_from: list[int] = field(default_factory=list)  # epochs of the runs that were finished before this one


@dataclass
class RunState:
    """Everything that changes during a run, as one dict of tensors and plain values."""

    recipe: dict[str, Any]
    architecture: dict[str, Any]
    progress: Progress
    window: Window
    objective: Objective
    optimiser: torch.optim.Optimizer
    average: Average | None

    def collect(self) -> dict[str, Any]:
        """With weights split over processes, every process must call this at the same time."""
        progress = self.progress
        return {
            "recipe": self.recipe,
            "architecture": self.architecture,
            "done": progress.done,
            "best": progress.best,
            "best_epoch": progress.best_epoch,
            "stopped": progress.stopped,
            "history": progress.history,
            "extended_from": progress.extended_from,
            "window": self.window.sums,
            "objective": whole(dict(self.objective.state_dict())),
            "optimiser": whole(self.optimiser.state_dict()),
            "average": whole(self.average.state()) if self.average is not None else None,
        }

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        self.objective.load_state_dict(split_like(state["objective"], self.objective))
        self.optimiser.load_state_dict(state["optimiser"])
        split_moments(self.optimiser)
        for group in self.optimiser.param_groups:  # the state may come from another device
            group["fused"] = self.optimiser.defaults["fused"]
        if self.average is not None:
            average = state["average"]
            self.average.load(average | {"model": split_like(average["model"], self.average.model)})
        for name in ("done", "best", "best_epoch", "stopped", "history"):
            setattr(self.progress, name, state[name])
        self.progress.extended_from = list(state.get("extended_from", []))
        self.window.sums = {name: value.to(device) for name, value in state["window"].items()}


def training_lock(folder: Path, name: str) -> JobLock:
    """The lock of whoever trains in this run folder."""
    return JobLock(folder / ".training.lock", f"the training {name}")


def save_state(folder: Path, state: dict[str, Any]) -> None:
    with atomic(folder / STATE) as file:
        torch.save(state, file)


def saved_architecture(folder: Path) -> dict[str, Any]:
    """The architecture of the model whose state is in a folder; empty where there is no readable state."""
    try:
        state = torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)
        return dict(state["architecture"])
    except Exception:  # a damaged state is refused where it is loaded
        return {}


def load_state(folder: Path, recipe: dict[str, Any], *, steps_per_epoch: int) -> dict[str, Any] | None:
    """The saved state, or None where there is none; refuses a state of another recipe.

    The state of a finished run fits the same recipe with more epochs: it is extended. Every finished length is kept in
    `extended_from`, because such a run has had the schedules of all of them.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        before, now = flat(state["recipe"]), flat(recipe)
        epochs, done, stopped = before.get(_EPOCHS), state.get("done", 0), state.get("stopped", False)
    except Exception as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}); {_MEND}") from None
    before = {**{key: value for key, value in _ADDED.items() if key in now}, **before}
    changed = sorted(key for key in before | now if before.get(key) != now.get(key) and key not in _MAY_CHANGE)
    if changed == [_EPOCHS] and isinstance(epochs, int) and now[_EPOCHS] > epochs:
        if not (stopped or done >= epochs * steps_per_epoch):
            raise UserError(
                f"{folder} holds a run of {epochs} epochs that is not finished; finish it with {_EPOCHS}={epochs}, "
                f"and then extend it, or choose another folder with output=…"
            )
        return {**state, "stopped": False, "extended_from": [*state.get("extended_from", []), epochs]}
    if changed:
        detail = ", ".join(f"{key}: {before.get(key)} → {now.get(key)}" for key in changed[:4])
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        given = [what for key, what in _GIVEN.items() if key in changed and str(now[key]).startswith("given:")]
        mend = f"give the same {' and '.join(given)} to continue it, or " if given else ""
        raise UserError(
            f"{folder} holds a run of another recipe ({detail}{more}); {mend}choose another folder with output=…"
        )
    return state


def restore(run_state: RunState, state: dict[str, Any], device: torch.device, folder: Path) -> None:
    """Restore a saved state. The file may come from anybody: one that does not fit is named in one line."""
    try:
        run_state.restore(state, device)
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {shorten(error)}"
        raise UserError(f"{folder / STATE} does not fit this run ({reason}); {_MEND}") from error


def architecture_of(model: Any) -> dict[str, Any]:
    """How to build the model again; empty for a module that was not built by hardtack."""
    return plain(getattr(model, "architecture", {}))
