"""The view of suite `smoothing`: the model's predictions for many noisy copies of an image, and what they certify.

The smoothed model predicts the class that the model gives to most copies x + N(0, σ²). Cohen, Rosenfeld and Kolter
("Certified adversarial robustness via randomized smoothing", ICML 2019) show: if that class has at least the
probability p > 1/2, no change of x below the l2 norm σ·Φ⁻¹(p) changes the smoothed model's prediction.

CERTIFY (their algorithm): `n0` copies choose the class, `n` other copies bound its probability from below by Clopper
and Pearson's one-sided bound at confidence 1 − alpha. Copies are not cut off at the box [0,1]: the theorem is about
Gaussian noise. PREDICT tests on the same `n` copies whether the most frequent class is ahead of the second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.evaluation.views import Shown, View, ViewColumns
from hardtack.results.certificates import certificate

ABSTAINED = -1
SELECTION, ESTIMATION = 0, 1  # keys of the two sets of copies: they must be independent
_STREAM = 0x736D6F6F  # keeps the noise apart from the random numbers of attacks
_WIDER = 4  # batches of the verifier that fit into one coarse batch on a GPU
_PLANNED = {False: 64, True: 1024}  # by whether there is a GPU: copies from which a plan measures the time


@dataclass(frozen=True, kw_only=True)
class SmoothedView(View):
    """`smoothing`: copies of every image under Gaussian noise of deviation `sigma`.

    Columns, all ending in `@smoothing`: `prediction` (the class chosen by the first `n0` copies), `count` (how many of
    the `samples` others are of that class), `lower_bound` (of its probability), `radius` (certified; 0 where
    abstained), `abstained`, and `vote` (PREDICT's class; −1 where it abstains).
    """

    sigma: float
    n0: int
    n: int
    alpha: float
    seed: int
    exact: bool = False
    name = "smoothing"
    source = ""
    alone = True

    @property
    def places(self) -> int:  # type: ignore[override]
        return 0 if self.exact else 1

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        return {
            "sigma": self.sigma, "selection_samples": self.n0, "samples": self.n, "alpha": self.alpha,
            "seed": self.seed, **({"exact": True} if self.exact else {}),
        }  # fmt: skip

    @property
    def cost(self) -> Cost:
        return Cost(self.n0 + self.n)

    def sample(self) -> tuple[SmoothedView, float]:
        """The view with few copies; times so many it costs as much as all of them."""
        few = min(self.n, _PLANNED[torch.cuda.is_available()])
        return dataclasses.replace(self, n0=0, n=few), (self.n0 + self.n) / few

    def shown(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Iterator[Shown]:
        """The copies that select of all images, then those that estimate, of one image after the other."""
        keys = randomness.make_keys(index, self.seed, _STREAM)
        for stage, count in ((SELECTION, self.n0), (ESTIMATION, self.n)):
            if count:  # a plan tries no selection
                yield from self._copies(x, randomness.fold(keys, stage), count, verifier.batch_size)

    def _copies(self, x: Tensor, keys: Tensor, count: int, batch_size: int) -> Iterator[Shown]:
        """`count` copies of every image. On a CPU a batch is of one image, so that its last bits depend on no other."""
        width = batch_size * (_WIDER if x.is_cuda else 1)
        together = max(1, width // count) if x.is_cuda else 1
        for rows in torch.arange(len(x), device=x.device).split(together):
            for numbers in torch.arange(count, device=x.device).split(width):
                own = randomness.fold(keys[rows, None], numbers).flatten()
                noise = randomness.normal_pairs(own, tuple(x.shape[1:]))
                copies = x[rows].repeat_interleave(len(numbers), dim=0) + self.sigma * noise
                yield Shown(copies, rows.repeat_interleave(len(numbers)))

    def from_classes(self, classes: Sequence[Tensor], rows: Sequence[Tensor], *, y: Tensor) -> ViewColumns:
        predicted, images, first = torch.cat(list(classes))[:, 0], torch.cat(list(rows)), len(y) * self.n0
        size = int(predicted.max()) + 1
        selected, counts = (
            torch.bincount(images[part] * size + predicted[part], minlength=len(y) * size).view(len(y), size)
            for part in (slice(None, first), slice(first, None))
        )
        own = selected.argmax(dim=1)
        count = counts.gather(1, own[:, None])[:, 0]
        columns = certificate(count.cpu().numpy(), self.n, sigma=self.sigma, alpha=self.alpha)
        columns |= {
            "prediction": own.cpu().numpy(), "samples": np.full(len(y), self.n),
            "vote": vote(counts.cpu().numpy(), self.alpha),
        }  # fmt: skip
        return {f"{name}@{self.name}": torch.from_numpy(values) for name, values in columns.items()}


def vote(counts: np.ndarray, alpha: float) -> np.ndarray:
    """PREDICT: the most frequent class of each row N×classes; −1 where the second may be as likely (two-sided test)."""
    from scipy.special import bdtr

    second, first = np.sort(np.pad(counts, ((0, 0), (1, 0))), axis=1)[:, -2:].T  # of one class the second has none
    p_value = np.minimum(1.0, 2 * bdtr(second.astype(float), first + second, 0.5))
    return np.where(p_value <= alpha, counts.argmax(axis=1), ABSTAINED)


def largest_radius(*, sigma: float, n: int, alpha: float) -> float:
    """The radius of an image whose copies are all of one class: no certificate reaches beyond it."""
    return max(0.0, sigma * NormalDist().inv_cdf(alpha ** (1 / n)))
