"""Which pixels influence the logit most, and whether attention and a trained occluder choose the same patches.

Saliency is the magnitude of the gradient of the class's logit with respect to the image (Simonyan et al. 2014), or its
mean over noisy copies (Smilkov et al. 2017). The occluder is that of RSPC: the patches that it hides are compared with
the most salient patches and with those that receive most attention.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score, mean_score
from hardtack.analysis.attention.maps import AttentionLayer, Kind, find_layers, listen
from hardtack.attacks.patches import grid, per_patch, pick
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.evaluation.threat_stages import default_batch
from hardtack.models import Occluder, find_occluder, load_occluder
from hardtack.models.files import sha256
from hardtack.models.tokens import default_patch_size

CHOICES = {"saliency": "saliency", "attention": "attention", "occluder": "the occluder"}


@analyses.register("saliency", papers=("rspc",))
@dataclass(frozen=True, kw_only=True)
class Saliency(OverImages):
    """Which pixels influence the logit most, and how far attention and a trained occluder choose the same patches.

    of           the class whose logit is differentiated: the label or the predicted one
    smooth       noisy copies over which the gradient is averaged; 0: the image alone
    sigma        standard deviation of their noise
    share        share of the patches that are compared; null: 0.1
    patch_size   side of a patch in pixels; null: the model's own, else the usual one
    occluder     a file or run with a trained occluder, which has its own share and patch size; null: none
    shown        images whose maps are stored
    """

    of: Literal["label", "predicted"] = "label"
    smooth: Annotated[int, Field(ge=0)] = 0
    sigma: Annotated[float, Field(gt=0)] = 0.1
    share: Number | None = None
    patch_size: Annotated[int, Field(ge=1)] | None = None
    occluder: str | None = None
    shown: Annotated[int, Field(ge=0)] = 6

    def __post_init__(self) -> None:
        check(self)
        if self.share is not None and not 0 < self.share <= 1:
            raise UserError(f"share must lie above 0 and not above 1, found {self.share}")
        for name in ("share", "patch_size") if self.occluder is not None else ():
            if getattr(self, name) is not None:
                raise UserError(f"an occluder has its own share and patch size: leave out {name}")

    def fingerprints(self) -> tuple[str, ...]:
        return (sha256(find_occluder(self.occluder))[:12],) if self.occluder else ()

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Saliency(self, context)


class _Saliency:
    """A row for each image."""

    def __init__(self, settings: Saliency, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        self.length = context.count
        self.at_once = settings.batch_size or min(64, default_batch(context.shape, context.device.type))
        x, y, _ = context.images(0, 1)
        self.occluder = _load(settings.occluder, x)
        given = self.occluder.patch_size if self.occluder else settings.patch_size
        self.size = given or default_patch_size(context.model, x)
        self.cells = math.prod(grid(x, self.size))
        share = settings.share or 0.1
        self.count = self.occluder.count if self.occluder else math.floor(share * (self.cells - 1) + 1e-9) + 1
        self.kind, self.layers, self.silent = _heard(context.model, x)
        if not saliency(context.model, x, y).isfinite().all():
            raise UserError("the gradient of this model with respect to its input is not finite")

    def rows(self, start: int, stop: int) -> Arrays:
        x, y, index = self.context.images(start, stop)
        maps = self._saliency(x, y, index)
        measured = {"index": index, "label": y, "concentration": concentration(maps)}
        scores = self._patch_scores(x, maps)
        measured |= {f"patches_{name}": values for name, values in scores.items()}
        for a, b in combinations(scores, 2):
            alike = overlap(self._chosen(scores[a]), self._chosen(scores[b]))
            unknown = measured["concentration"].isnan() & (a == "saliency")
            measured[f"overlap_{a}_{b}"] = alike.masked_fill(unknown, torch.nan)
        return {name: _numpy(value) for name, value in measured.items()}

    def conclude(self, arrays: Arrays) -> Conclusion:
        choices = [name for name in CHOICES if f"patches_{name}" in arrays]
        chance = self.count / self.cells
        scores = _mean("saliency_concentration", arrays["concentration"])
        for a, b in combinations(choices, 2):
            scores += _mean("patch_overlap", arrays[f"overlap_{a}_{b}"], column=f"{a}, {b}")
        scores.append(Score(metric="patch_overlap", value=chance, n=0, column="chance"))
        facts = {
            "patches": self.count, "of": self.cells, "patch_size": self.size, "chance": chance, "choices": choices,
            "attention": self.kind, "smooth": self.settings.smooth, "class": self.settings.of,
            "occluder": next(iter(self.settings.fingerprints()), None),
        }  # fmt: skip
        notes = [self.silent] if self.silent else []
        if blind := int(np.isnan(arrays["concentration"]).sum()):
            notes.append(
                f"the gradient is zero or NaN on {blind} of {self.length} images: they are left out, not counted as 0"
            )
        return Conclusion(scores=scores, facts=facts, arrays=self._pictures(), notes=notes)

    def _saliency(self, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
        if self.settings.of == "predicted":
            with torch.no_grad():
                y = self.context.model(x).argmax(dim=1)
        noise = self.settings.sigma if self.settings.smooth else 0.0
        copies = noisy(x, index, count=max(1, self.settings.smooth), sigma=noise, seed=self.context.seed)
        return torch.stack([saliency(self.context.model, copy, y) for copy in copies]).mean(dim=0)

    def _patch_scores(self, x: Tensor, maps: Tensor) -> dict[str, Tensor]:
        """Scores of the patches (N×rows×columns) by saliency, attention and the occluder. High scores are chosen."""
        scores = {"saliency": per_patch(maps[:, None], self.size)}
        if self.layers:
            heard = listen(self.context.model, x, self.kind, self.layers)  # type: ignore[arg-type]
            scores["attention"] = received(heard, self.layers, grid(x, self.size))
        if self.occluder is not None:
            with torch.no_grad():
                side = self.occluder.side  # the occluder hides patches with low scores
                scores["occluder"] = -self.occluder.to(x.device).scores(x).reshape(-1, side, side)
        return scores

    def _chosen(self, scores: Tensor) -> Tensor:
        return pick(scores, self.count)

    def _pictures(self) -> Arrays:
        """The first images with their saliency, scaled by the 99.5 % quantile of each image."""
        count, batches = min(self.settings.shown, self.length), {"shown_x": [], "shown_saliency": []}  # type: ignore[var-annotated]
        for start in range(0, count, self.at_once):
            x, y, index = self.context.images(start, min(count, start + self.at_once))
            maps = self._saliency(x, y, index)
            most = maps.flatten(1).quantile(0.995, dim=1).clamp_min(1e-30)[:, None, None]
            batches["shown_x"].append((255 * x).round().to(torch.uint8).permute(0, 2, 3, 1))
            batches["shown_saliency"].append((255 * (maps / most).clamp(0, 1)).round().to(torch.uint8))
        return {name: _numpy(torch.cat(parts)) for name, parts in batches.items()} if count else {}


# ---------------------------------------------------------------- measures


def saliency(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """|∂ logit of y / ∂ x|, the maximum over channels: N×H×W."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        logit = model(x).gather(1, y[:, None]).sum()
        if not logit.requires_grad:
            raise UserError("this model passes no gradient to its input (no_grad, or detach): it has no saliency")
        (gradient,) = torch.autograd.grad(logit, x)
    return gradient.abs().amax(dim=1)


def noisy(x: Tensor, index: Tensor, *, count: int, sigma: float, seed: int) -> Iterator[Tensor]:
    """`count` copies with independent Gaussian noise, not clipped to [0,1]; with `sigma` 0 the images themselves."""
    for number in range(count):
        keys = randomness.make_keys(index, seed, number)
        yield x + sigma * randomness.normal(keys, tuple(x.shape[1:]), stream=4) if sigma else x


def concentration(maps: Tensor, share: float = 0.1) -> Tensor:
    """The share of all saliency in the tenth of the pixels with most saliency: N. It is 0.1 if all pixels are equal.

    It is NaN for an image whose gradient is zero.
    """
    flat = maps.flatten(1)
    most = flat.topk(max(1, round(share * flat.shape[1])), dim=1).values.sum(dim=1)
    return most / flat.sum(dim=1)  # 0/0 is NaN


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """The share of the patches chosen in `a` that are also chosen in `b` (bool, N×rows×columns): N."""
    return (a & b).flatten(1).sum(dim=1) / a.flatten(1).sum(dim=1).clamp_min(1)


def received(maps: list[Tensor], layers: list[AttentionLayer], shape: tuple[int, int]) -> Tensor:
    """The attention that each patch receives, mean over layers, heads and queries, on a grid of this shape."""
    attention = []
    for weights, layer in zip(maps, layers, strict=True):
        if layer.place is None or layer.place.windows > 1:
            continue
        keys = layer.place.keys
        mean_map = weights.mean(dim=(1, 2, 3))[:, keys.prefix :].reshape(-1, 1, keys.rows, keys.columns)
        attention.append(_resized(mean_map, shape)[:, 0])
    return torch.stack([map_ / map_.sum(dim=(1, 2), keepdim=True) for map_ in attention]).mean(dim=0)


def _resized(maps: Tensor, shape: tuple[int, int]) -> Tensor:
    coarser = maps.shape[-2] < shape[0] or maps.shape[-1] < shape[1]
    return F.interpolate(maps, shape, mode="nearest") if coarser else F.adaptive_avg_pool2d(maps, shape)


def _heard(model: nn.Module, x: Tensor) -> tuple[Kind | None, list[AttentionLayer], str]:
    """The kind of attention over the whole image (between tokens, else class), its layers, and a note if none."""
    for kind in ("token", "class"):
        try:
            layers = find_layers(model, x, kind)
        except UserError:
            continue
        if any(layer.place is not None and layer.place.windows == 1 for layer in layers):
            return kind, layers, ""
    return None, [], "this network has no attention over the whole image: saliency is not compared with it"


def _load(path: str | None, x: Tensor) -> Occluder | None:
    if path is None:
        return None
    occluder = load_occluder(path).eval()
    if x.shape[2:] != (occluder.image_size, occluder.image_size):
        made_for = f"{occluder.image_size}×{occluder.image_size}"
        raise UserError(f"{path}: its occluder is made for images of {made_for}, found {x.shape[2]}×{x.shape[3]}")
    return occluder.requires_grad_(False)


def _mean(metric: str, per_image: np.ndarray, *, column: str = "") -> list[Score]:
    """The mean over the images without NaN. If some are NaN, no per-image values are stored for paired comparisons."""
    defined = per_image[~np.isnan(per_image)]
    if len(defined) == len(per_image):
        return [mean_score(metric, per_image, column=column)]
    return [dataclasses.replace(mean_score(metric, defined, column=column), per_image=None)] if len(defined) else []


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
