"""Weights & Biases: a run of the project $WANDB_PROJECT, or hardtack.

Its own variables decide the rest: WANDB_MODE=offline keeps the run on disk (`wandb sync` uploads it), WANDB_ENTITY,
WANDB_DIR, WANDB_BASE_URL. Its files never lie in the run folder: they contain links that lead out of it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping

from hardtack.base.errors import UserError
from hardtack.base.registry import trackers
from hardtack.training.trackers.tracker import Outcome, TrackedRun, Tracker, shown

PROJECT = "hardtack"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@trackers.register(
    "wandb", help="Weights & Biases: project $WANDB_PROJECT or hardtack; WANDB_MODE=offline needs no net"
)
class WeightsAndBiases(Tracker):
    """The step is a metric of its own, `step`: lines that a resumed run sends again fall on the same places."""

    sends_later = True  # a process of wandb's own writes and uploads

    def __init__(self, run: TrackedRun) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError("train.track=wandb needs Weights & Biases: pip install 'hardtack[track]'") from None
        stored = run.id if run.id is not None and _ID.fullmatch(run.id) else None
        self.id = stored or secrets.token_hex(4)
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or PROJECT, id=self.id, name=run.name, resume="allow",
                reinit="create_new", settings=wandb.Settings(silent=True, console="off"),
            )  # fmt: skip
        except Exception as error:
            raise UserError(
                f"train.track=wandb: no run could be opened ({shown(error)}); log in (wandb login), or keep the run "
                "on disk: WANDB_MODE=offline"
            ) from error
        kept = f"{self._run.dir.removesuffix('/files')} (offline; wandb sync uploads it)"
        self.place = kept if self._run.offline else str(self._run.url)
        self._run.config.update(dict(run.settings), allow_val_change=True)
        for name in ("epoch", "train/*", "validation/*", "start/*", "extended/*"):
            self._run.define_metric(name, step_metric="step")

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, "step": step})

    def close(self, outcome: Outcome) -> None:
        self._run.finish(exit_code=0 if outcome == "finished" else 1)
