"""The state of a run between two steps, written whole and renamed into place, read without running code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hardtack.config import flat
from hardtack.errors import UserError
from hardtack.files import atomic

STATE = "checkpoints/state.pt"

# What may differ between a run and its continuation without making it another run.
_FREE = {"output", "runtime.device", "runtime.compile", "data.root", "data.workers", "train.log_every",
         "train.checkpoint_every_s", "train.tensorboard", "train.checkpoint_blocks"}  # fmt: skip


def save_state(folder: Path, state: dict[str, Any]) -> None:
    with atomic(folder / STATE) as file:
        torch.save(state, file)


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
