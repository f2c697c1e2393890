"""Rademacher complexity of linear classes on the images, with and without an adversary, against the dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score
from hardtack.analysis.complexity.rademacher import EXACT_UP_TO, Norm, closed_bounds, extra, signs, suprema
from hardtack.analysis.complexity.theorem import LEFT_OUT, block_terms, shared_terms
from hardtack.analysis.complexity.vectors import chosen, features, resized
from hardtack.base.config import SEVERAL, Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.threats import Threat

_AT_ONCE = 1 << 22  # values in a piece


@analyses.register("complexity", papers=("arg",))
@dataclass(frozen=True, kw_only=True)
class Complexity(OverImages):
    """Rademacher complexity of norm-bounded linear classes on the images, clean and attacked, against dimension.

    norms      norms of the weights that are bounded
    eps        the adversary's linf radius
    bound      the largest norm of the weights (Θ)
    of         the vectors: pixels, or the model's features
    by         how their dimension is varied: resize (images) or subset (of coordinates); null: resize for pixels,
               subset for features
    sizes      heights of the resized images, or numbers of coordinates; none: a usual range
    positive   the class whose labels are +1, all others −1; null: the first half of the classes
    draws      random signs that are drawn; with up to 16 images all signs are used
    failure    probability with which Theorem 1 may fail
    """

    norms: Annotated[tuple[Norm, ...], Field(min_length=1), SEVERAL] = ("l1", "l2", "linf")
    eps: Annotated[Number, Field(ge=0)] = 8 / 255
    bound: Annotated[float, Field(gt=0)] = 1.0
    of: Literal["pixels", "features"] = "pixels"
    by: Literal["resize", "subset"] | None = None
    sizes: Annotated[tuple[Annotated[int, Field(ge=1)], ...], SEVERAL] = ()
    positive: Annotated[int, Field(ge=0)] | None = None
    draws: Annotated[int, Field(ge=2)] = 1000
    failure: Annotated[float, Field(gt=0, lt=1)] = 0.05

    def __post_init__(self) -> None:
        check(self)
        if self.of == "features" and self.by == "resize":
            raise UserError("features cannot be resized: leave out complexity.by, or set it to subset")
        object.__setattr__(self, "by", self.by or ("resize" if self.of == "pixels" else "subset"))
        object.__setattr__(self, "sizes", tuple(sorted(set(self.sizes))))

    @property
    def asks_model(self) -> bool:
        return self.of == "features"

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Complexity(self, context)


class _Complexity:
    """A row for each choice of signs."""

    def __init__(self, settings: Complexity, context: AnalysisContext) -> None:
        self.settings, self.context, self.n = settings, context, context.count
        images = context.cached_images(settings.batch_size)
        self.vectors = images if settings.of == "pixels" else features(context.model, images)
        self.d = d = next(iter(self.vectors))[0][0].numel()
        if settings.by == "resize":
            self.views = resized(context.shape, settings.sizes)
        else:
            self.views = chosen(d, settings.sizes, seed=context.seed, device=context.device)
        labels = torch.from_numpy(images.each()["label"]).to(context.device)
        self.labels = _halved(labels, settings.positive, len(context.classes))
        self.exact = self.n <= EXACT_UP_TO
        self.length = 2**self.n if self.exact else settings.draws
        self.at_once = max(1, min(4096, _AT_ONCE // max(self.dims)))
        self.columns = [self._column_norms(view) for view in self.views.values()]
        self.frobenius = math.sqrt(sum(float(x.double().square().sum()) for x, _, _ in self.vectors))

    @property
    def dims(self) -> list[int]:
        return list(self.views)

    def _column_norms(self, view: Callable[[Tensor], Tensor]) -> np.ndarray:
        """The l2 norm of each coordinate over all images."""
        squares = [view(x).double().square().sum(dim=0) for x, _, _ in self.vectors]
        return torch.stack(squares).sum(dim=0).sqrt().cpu().numpy()

    def rows(self, start: int, stop: int) -> Arrays:
        drawn = signs(start, stop, self.n, seed=self.context.seed).to(self.context.device)
        total, sums = drawn.sum(dim=1), self._sums(drawn * self.labels)
        suprema = torch.stack([self._suprema(part, total) for part in sums], dim=2)
        clean, attacked = (suprema * self.settings.bound / self.n).cpu().numpy()
        return {"clean": clean, "attacked": attacked}

    def _sums(self, signed: Tensor) -> list[Tensor]:
        """Σ σᵢ yᵢ xᵢ in every dimension."""
        sums = [torch.zeros(len(signed), d, device=signed.device) for d in self.dims]
        shares = signed.split(self.vectors.lengths, dim=1)
        for share, (x, _, _) in zip(shares, self.vectors, strict=True):
            for so_far, view in zip(sums, self.views.values(), strict=True):
                so_far += share @ view(x)
        return sums

    def _suprema(self, sums: Tensor, total: Tensor) -> Tensor:
        """2 × draws × norms."""
        each = [suprema(sums, total, norm=norm, eps=self.settings.eps) for norm in self.settings.norms]
        return torch.stack([torch.stack(part, dim=1) for part in zip(*each, strict=True)])

    def conclude(self, arrays: Arrays) -> Conclusion:
        wanted = self.settings
        arrays = {**arrays, "added": arrays["attacked"] - arrays["clean"]}
        means = {kind: values.mean(axis=0) for kind, values in arrays.items()}  # dimensions × norms
        wide = {kind: np.zeros_like(means[kind]) for kind in means}
        if not self.exact:
            wide = {kind: 1.96 * arrays[kind].std(axis=0, ddof=1) / math.sqrt(self.length) for kind in means}
        added = np.array(
            [
                [extra(norm, eps=wanted.eps, bound=wanted.bound, d=d, n=self.n) for norm in wanted.norms]
                for d in self.dims
            ]
        )
        upper = means["clean"] + added
        closed = [
            [closed_bounds(columns, norm, n=self.n, bound=wanted.bound) for norm in wanted.norms]
            for columns in self.columns
        ]
        kept = {
            "dims": np.array(self.dims), **means, **{f"{kind}_error": half for kind, half in wide.items()},
            "upper": upper, "constant": 2 * means["attacked"] / np.maximum(upper, 1e-30), "closed": np.array(closed),
        }  # fmt: skip
        blocks = block_terms(self.context.model, eps=wanted.eps, n=self.n, d=self.d, frobenius=self.frobenius)
        facts: dict[str, Any] = {
            "norms": list(wanted.norms), "dims": self.dims, "exact": self.exact, "signs": self.length,
            "frobenius": self.frobenius, "blocks": blocks, **shared_terms(n=self.n, failure=wanted.failure),
        }  # fmt: skip
        notes = (
            [LEFT_OUT]
            if blocks
            else ["no block has an attention and an MLP, so Theorem 1 does not apply to this model"]
        )
        scores = [*self._scores(means, wide, upper), *self._theorem(blocks)]
        return Conclusion(scores=scores, facts=facts, arrays=kept, notes=notes)

    def _scores(self, means: Arrays, wide: Arrays, upper: np.ndarray) -> list[Score]:
        """The scores at the largest dimension."""
        threat = str(Threat("linf", self.settings.eps)) if self.settings.of == "pixels" else None  # type: ignore[arg-type]
        scores = []
        for place, norm in enumerate(self.settings.norms):
            for kind, metric in (("clean", "rademacher_complexity"), ("attacked", "attacked_rademacher_complexity")):
                value, error = float(means[kind][-1, place]), float(wide[kind][-1, place])
                scores.append(
                    Score(
                        metric=metric, value=value, n=self.n, column=norm, interval=f"{self.length} signs, 95%",
                        low=None if self.exact else value - error, high=None if self.exact else value + error,
                        threat=threat if kind == "attacked" else None,
                    )
                )  # fmt: skip
            bound = float(upper[-1, place])
            scores.append(Score(metric="lemma_1_upper_bound", value=bound, n=self.n, column=norm, threat=threat))
        return scores

    def _theorem(self, blocks: list[dict[str, Any]]) -> list[Score]:
        """The largest of each term over the blocks."""
        kinds = {"theorem_1_middle_term": "middle_term", "theorem_1_adversary_term": "term"} if blocks else {}
        return [
            Score(metric=metric, value=max(block[key] for block in blocks), n=self.n) for metric, key in kinds.items()
        ]


def _halved(y: Tensor, positive: int | None, classes: int) -> Tensor:
    """The sign ±1 of each label."""
    classes = classes or int(y.max()) + 1
    if positive is not None and positive >= classes:
        raise UserError(f"there is no class {positive}: classes are numbered from 0 to {classes - 1}")
    first = y == positive if positive is not None else y < (classes + 1) // 2
    return 2.0 * first.float() - 1
