"""The loss around the trained weights along one or two filter-normalised random directions."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from hardtack.analysis.adversary import optional_adversary
from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score, mean_score
from hardtack.analysis.landscape.directions import cosine, filter_direction, length
from hardtack.analysis.landscape.loss import Losses, batch_norms, estimate_statistics
from hardtack.base.annotations import AN_ATTACK
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.threats import Threat


@analyses.register("landscape", papers=("arg",))
@dataclass(frozen=True, kw_only=True)
class Landscape(OverImages):
    """Loss around the trained weights, in filter-normalised random directions: a line or a surface.

    n            the number of images, from the first one on
    dims         1: a line; 2: a surface
    points       grid points on each side
    reach        distance from the trained weights to the edge of the grid; 1 is the norm of the weights
    threat       the loss is that under attack in this threat; null: the clean loss
    attack       the attack, its name or settings, as in evaluate; by default PGD of 10 steps
    craft        compute the attack at every point, or once, at the trained weights
    statistics   of batch norm: as trained, or estimated at each point
    """

    n: Annotated[int, Field(ge=1)] = 200
    dims: Literal[1, 2] = 2
    points: Annotated[int, Field(ge=3, le=501)] = 21
    reach: Annotated[float, Field(gt=0)] = 1.0
    threat: Threat | None = None
    attack: Annotated[Any, AN_ATTACK] = field(default_factory=dict)
    craft: Literal["everywhere", "once"] = "everywhere"
    statistics: Literal["trained", "estimated"] = "trained"

    def __post_init__(self) -> None:
        check(self)
        if self.points % 2 == 0:
            raise UserError(f"points must be odd, so that the trained weights are one of them; found {self.points}")
        threat, attack = optional_adversary("landscape", self.attack, self.threat, steps=10)
        object.__setattr__(self, "threat", threat)
        object.__setattr__(self, "attack", attack)

    def begin(self, context: AnalysisContext) -> RowWork:
        if self.statistics == "estimated" and not batch_norms(context.model):
            raise UserError("this model has no batch norm whose statistics could be estimated; leave out statistics")
        return _Landscape(self, context)


class _Landscape:
    """A row for each point of the grid."""

    at_once = 1

    def __init__(self, settings: Landscape, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        self.losses = Losses(context, settings.attack or None, settings.batch_size)
        self.model = copy.deepcopy(context.model)
        drawn = [filter_direction(context.model, seed=context.seed, number=i) for i in range(settings.dims)]
        self.lengths = [length(direction) for direction in drawn]
        self.cosine = cosine(*drawn) if settings.dims == 2 else None
        names = list(drawn[0])
        self.trained = [context.model.get_parameter(name).detach() for name in names]
        self.moving = [self.model.get_parameter(name) for name in names]
        self.directions = [[direction[name] for name in names] for direction in drawn]
        self.axis = np.linspace(-settings.reach, settings.reach, settings.points)
        self.length = settings.points**settings.dims
        self.crafted = self.losses.crafted(context.model) if settings.craft == "once" else None

    def rows(self, start: int, stop: int) -> Arrays:
        measured = [self._at(row) for row in range(start, stop)]
        return {
            name: np.array([losses[place] for losses in measured]) for place, name in enumerate(("loss", "accuracy"))
        }

    def _at(self, row: int) -> tuple[float, float]:
        losses, right = self._each(row)
        return float(losses.mean()), float(right.double().mean())

    def _each(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._move(row)
        if self.settings.statistics == "estimated":
            estimate_statistics(self.model, self.losses.images)
        batches = self.losses.attacked(self.model) if self.crafted is None else self.crafted
        return self.losses.each(self.model, batches)

    @torch.no_grad()
    def _move(self, row: int) -> None:
        """Set the weights to those of this point."""
        places = [float(self.axis[i]) for i in np.unravel_index(row, (self.settings.points,) * self.settings.dims)]
        moved = self.trained
        for place, direction in zip(places, self.directions, strict=True):
            moved = list(torch._foreach_add(moved, direction, alpha=place))
        for weight, value in zip(self.moving, moved, strict=True):
            weight.copy_(value)

    def conclude(self, arrays: Arrays) -> Conclusion:
        middle = self.length // 2
        per_image = self._each(middle)[0].cpu().numpy()
        threat = str(self.settings.threat) if self.settings.threat else None
        grid = np.stack(np.meshgrid(*[self.axis] * self.settings.dims, indexing="ij"), axis=-1)
        inside = np.linalg.norm(grid.reshape(self.length, -1), axis=1) <= self.settings.reach * (1 + 1e-9)
        finite = np.isfinite(arrays["loss"])
        rise = (arrays["loss"] - arrays["loss"][middle])[inside & finite]
        scores = [
            mean_score("loss_at_weights", per_image, threat=threat),
            Score(metric="mean_loss_rise", value=float(rise.mean()), n=len(per_image), threat=threat),
        ]
        lost = int((inside & ~finite).sum())
        kept = {"axis": self.axis, **self.losses.images.each()}
        facts = {
            "points": self.settings.points, "reach": self.settings.reach, "lengths": self.lengths,
            "cosine": self.cosine, "batch_norms": len(batch_norms(self.model)),
        }  # fmt: skip
        notes = self.losses.blind_notes()
        if lost:
            notes.append(f"the loss is not finite at {lost} points; mean_loss_rise leaves them out")
        return Conclusion(scores=scores, facts=facts, arrays=kept, notes=notes)
