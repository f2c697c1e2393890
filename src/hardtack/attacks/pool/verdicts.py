"""The verdict table: what happened to each image, kept once, with named columns, from the pool to the parquet file.

A *trial* is one threat and the stages (attacks) that run against it one after the other. Columns that a trial decides
are trials × images; attack runs write into them directly. The parquet file has one row per image: `columns` reduces
each column over the trials, by one rule per column. The first trial that broke an image gives the reason.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.threats import Threat

_BY_TRIAL = (
    "remaining", "attacked", "broken_by_stage", "broken_at_step", "target", "forwards", "backwards", "zero_gradient",
    "flat_loss", "climbed", "unverified", "not_finite", "silent_success", "margin_left",
)  # fmt: skip
_BY_IMAGE = ("x_adv", "adversarial_prediction", "size")
_EVIDENCE = "evidence"


class VerdictTable:
    """`remaining`: still correctly classified under the trial's attacks so far. Images wrong when clean never are.

    climbed      some search by gradients ran on the image; `flat_loss`: none of them raised its loss
    margin_left  share of the clean margin that is left at the closest image found
    x_adv        the image that broke it first or, while it is robust, the closest one found
    """

    def __init__(self, inputs: AttackInputs, *, trials: int = 1) -> None:
        n, device = len(inputs.y), inputs.y.device
        self.inputs = inputs
        self.clean_prediction = inputs.clean.argmax(dim=1)
        self.correct = self.clean_prediction == inputs.y

        def column(value: float, dtype: torch.dtype = torch.bool) -> Tensor:
            return torch.full((trials, n), value, dtype=dtype, device=device)

        self.remaining, self.attacked = column(False), column(False)
        self.zero_gradient, self.not_finite, self.unverified = column(False), column(False), column(False)
        self.flat_loss, self.climbed, self.silent_success = column(False), column(False), column(False)
        self.broken_by_stage, self.broken_at_step, self.target = (column(-1, torch.int64) for _ in range(3))
        self.forwards, self.backwards = column(0, torch.int64), column(0, torch.int64)
        self.margin_left = column(1, inputs.clean.dtype)
        self.x_adv = inputs.x.clone()
        self.adversarial_prediction = self.clean_prediction.clone()
        self.size = torch.full((n,), torch.nan, device=device)
        # the images that broke others, by trial: rows of the table, and the images, in the order they were found
        self._evidence: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {trial: [] for trial in range(trials)}

    # ------------------------------------------------------------ writing

    def begin_trial(self, trial: int, *, follows: bool = False) -> None:
        """`follows`: only images that all earlier trials left robust are attacked; else all that are correct clean."""
        self.remaining[trial] = self.robust if follows else self.correct

    def add(
        self,
        trial: int,
        stage: int,
        rows: Tensor,
        *,
        broken: Tensor,
        x_adv: Tensor,
        prediction: Tensor,
        forwards: Tensor,
        backwards: Tensor,
        target: Tensor,
        step: Tensor,
    ) -> None:
        """What a stage did to the images in `rows`; the other arguments have one entry for each of them."""
        self.attacked[trial, rows] = True
        self.forwards[trial, rows] += forwards
        self.backwards[trial, rows] += backwards
        robust_before = ~self._broken(trial)[rows]
        self.x_adv[rows[robust_before]] = x_adv[robust_before]
        self.adversarial_prediction[rows[robust_before]] = prediction[robust_before]
        down = rows[broken]
        self.remaining[trial, down] = False
        self.broken_by_stage[trial, down] = stage
        self.target[trial, down], self.broken_at_step[trial, down] = target[broken], step[broken]
        if len(down):
            self._evidence[trial].append((down.cpu().numpy(), x_adv[broken].cpu().numpy()))

    def add_climb(self, trial: int, rows: Tensor, rose: Tensor) -> None:
        """The loss of an image is flat when no search by gradients has raised it."""
        self.flat_loss[trial, rows] = ~rose & (self.flat_loss[trial, rows] | ~self.climbed[trial, rows])
        self.climbed[trial, rows] = True

    def finish_trial(self, trial: int, threat: Threat) -> None:
        """Measure the perturbations of a finished trial, in the norm of its threat."""
        concerned = self.attacked[trial] & ~self._broken(trial)
        self.size = torch.where(concerned, threat.size(self.x_adv - self.inputs.x), self.size)

    # ------------------------------------------------------------ reading

    def _broken(self, trials: int | None = None) -> Tensor:
        """Broken in one of the first `trials` trials (default: in any)."""
        return (self.attacked & ~self.remaining)[:trials].any(dim=0)

    @property
    def robust(self) -> Tensor:
        return self.correct & ~self._broken()

    def suspects(self, trial: int) -> Tensor:
        """Images on which gradients gave the trial's searches no direction."""
        return self.zero_gradient[trial] | self.not_finite[trial] | self.flat_loss[trial]

    def broken_within(self, radius: float) -> Tensor:
        """Images whose adversarial image lies within a radius."""
        return self._broken() & (self.size <= radius * (1 + 1e-6) + 2e-7)

    def first_breaking(self) -> tuple[Tensor, Tensor]:
        """For each image the first trial that broke it and the stage of that trial; −1 where none did."""
        broken = self.attacked & ~self.remaining
        if not len(broken):
            return self.clean_prediction * 0 - 1, self.clean_prediction * 0 - 1
        trial = broken.int().argmax(dim=0)
        stage = self.broken_by_stage.gather(0, trial[None])[0]
        return torch.where(broken.any(dim=0), trial, -1), stage

    def _at_breaking(self, column: Tensor, otherwise: int = -1) -> Tensor:
        trial, _ = self.first_breaking()
        if not len(column):
            return trial
        return torch.where(trial >= 0, column.gather(0, trial.clamp(min=0)[None])[0], otherwise)

    def columns(self, names: list[list[str]]) -> dict[str, np.ndarray]:
        """The columns of the parquet file. `names[trial][stage]` is what `broken_by` says."""
        trial, stage = (part.cpu().tolist() for part in self.first_breaking())
        reasons = [None if one < 0 else names[one][other] for one, other in zip(trial, stage, strict=True)]
        flat = self.climbed.any(dim=0) & (self.flat_loss | ~self.climbed).all(dim=0)
        tensors = {
            "index": self.inputs.keys, "label": self.inputs.y, "robust": self.robust, "broken_by": self.robust,
            "broken_at_step": self._at_breaking(self.broken_at_step), "target": self._at_breaking(self.target),
            "size": self.size, "adversarial_prediction": self.adversarial_prediction,
            "forwards": self.forwards.sum(dim=0), "backwards": self.backwards.sum(dim=0),
            "attacked": self.attacked.any(dim=0), "zero_gradient": self.zero_gradient.any(dim=0), "flat_loss": flat,
            "unverified": self.unverified.any(dim=0), "not_finite": self.not_finite.any(dim=0),
            "silent_success": self.silent_success.any(dim=0) & self.robust,
        }  # fmt: skip
        arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
        return arrays | {"broken_by": np.array(reasons, dtype=object)}

    def evidence(self, trial: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the images that a trial broke, ascending, and the adversarial images (M×3×H×W fp32)."""
        empty = np.empty((0, *self.inputs.x.shape[1:]), dtype=np.float32)
        rows = np.concatenate([np.empty(0, dtype=np.int64), *(part[0] for part in self._evidence[trial])])
        images = np.concatenate([empty, *(part[1] for part in self._evidence[trial])])
        order = np.argsort(rows)
        return rows[order], images[order]

    # ------------------------------------------------------------ on disk

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is needed to continue."""
        arrays = {name: vars(self)[name].cpu().numpy() for name in (*_BY_TRIAL, *_BY_IMAGE)}
        for trial in self._evidence:
            arrays[f"{_EVIDENCE}.{trial}.rows"], arrays[f"{_EVIDENCE}.{trial}.x_adv"] = self.evidence(trial)
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        for name in (*_BY_TRIAL, *_BY_IMAGE):
            setattr(self, name, torch.from_numpy(arrays[name]).to(self.inputs.x.device))
        for trial in self._evidence:
            pair = arrays[f"{_EVIDENCE}.{trial}.rows"], arrays[f"{_EVIDENCE}.{trial}.x_adv"]
            self._evidence[trial] = [pair]
