"""Views with a few damaged patches: the same masks for every image, and several kinds of damage inside them.

Figures 1 and 2 of Guo, Stutz and Schiele, "Improving robustness of vision transformers by reducing sensitivity to
patch corruptions", 2023. A mask is a few patches of an image, drawn at random or chosen by a trained occluder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import Ascent, Occlusion
from hardtack.attacks.patches import cover, grid, pick
from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.base.config import SEVERAL, Number, check
from hardtack.base.errors import UserError
from hardtack.evaluation.views import Shown, View, ViewColumns, confidence, finite_logits
from hardtack.models import Occluder, find_occluder, load_occluder
from hardtack.models.files import sha256
from hardtack.threats import Threat

Kind = Literal["occlude", "noise", "drop", "pgd"]
Kinds = Annotated[tuple[Kind, ...], SEVERAL, Field(min_length=1)]
_EIGHT_LEVELS = Threat.parse("linf:8/255")


@dataclass(frozen=True, kw_only=True)
class PatchConfig:
    """The settings `patches.…` of suite=patches.

    kinds        kinds of damage behind the same masks: occlude (uniform noise instead of the pixels), noise (Gaussian
                 noise added to them), drop (nothing in their place), pgd (moved by gradient ascent, which costs steps +
                 2 forward and steps backward passes a mask)
    share        share of the patches that a mask covers; null: 0.1
    masks        masks of every image; null: 100
    patch_size   side of a patch in pixels; null: the model's own, else the usual one (docs/patches.md)
    choose       random masks, or occluder: one mask for every image, chosen by a trained network, which has its own
                 share and patch size
    occluder     of choose=occluder: the file of that network, or the run that trained it
    noise        of noise: standard deviation of what is added (0.38: ImageNet-C's gaussian noise at its worst)
    fill         of drop: what is left, black (zero) or the image's mean colour
    threat       of pgd: how far the covered pixels may move
    steps        of pgd: steps of gradient ascent
    """

    kinds: Kinds = ("occlude", "noise", "drop")
    share: Number | None = None
    masks: Annotated[int, Field(ge=1)] | None = None
    patch_size: Annotated[int, Field(ge=1)] | None = None
    choose: Literal["random", "occluder"] = "random"
    occluder: str | None = None
    noise: Number = 0.38
    fill: Literal["zero", "mean"] = "zero"
    threat: Threat = _EIGHT_LEVELS
    steps: Annotated[int, Field(ge=1)] = 5

    def __post_init__(self) -> None:
        check(self)
        if (self.choose == "occluder") != (self.occluder is not None):
            raise UserError(
                "choose=occluder and occluder=PATH go together: one says who chooses, the other where it is"
            )
        for name in ("share", "patch_size", "masks") if self.occluder is not None else ():
            if getattr(self, name) is not None:
                raise UserError(f"an occluder chooses one mask, of its own share and patch size; leave out {name}")
        if self.share is not None and not 0 < self.share <= 1:
            raise UserError(f"share must lie above 0 and not above 1, found {self.share}")
        if not self.noise > 0:
            raise UserError(f"noise must be positive, found {self.noise}")


USUAL = PatchConfig()


@dataclass(frozen=True, kw_only=True)
class Masks:
    """Which patches, for every image: `count` masks of `patches` out of the `rows`×`columns` of `size` pixels each."""

    count: int
    patches: int
    rows: int
    columns: int
    size: int
    share: float
    occluder: Occluder | None = None

    def cells(self, x: Tensor, keys: Tensor) -> Tensor:
        """One mask, N×rows×columns bool, for images with these keys; an occluder asks the image alone."""
        if self.occluder is not None:
            return self.occluder.to(x.device)(x) > 0
        return pick(randomness.uniform(keys, (self.rows, self.columns)), self.patches)

    def pixels(self, x: Tensor, keys: Tensor) -> Tensor:
        """The pixels of one mask, N×1×H×W."""
        return cover(self.cells(x, keys), self.size, x)

    @property
    def words(self) -> str:
        """`7 of 64 patches of 4×4, 100 masks`."""
        what = f"{self.patches} of {self.rows * self.columns} patches of {self.size}×{self.size}"
        how = f"{self.count} mask{'s' * (self.count > 1)}" if self.occluder is None else "chosen by an occluder"
        return f"{what}, {how}"


@dataclass(frozen=True, kw_only=True)
class MaskedView(View):
    """One kind of damage inside every mask: `right@KIND/NUMBER` and, with `confidence`, the true class's mean and least
    confidence."""

    name: Kind
    masks: Masks
    config: PatchConfig
    settings: dict[str, Any]
    seed: int
    confidence: bool = True
    source = "regenerated"

    @property
    def places(self) -> int:  # type: ignore[override]
        return 0 if self.confidence else 1

    def identity(self) -> list[Any]:
        return [*super().identity(), *([] if self.confidence else ["predictions"])]

    @property
    def words(self) -> str:
        return f"{self.name} {self.masks.words}"

    @property
    def threat(self) -> str | None:
        return str(self.config.threat) if self.name == "pgd" else None

    @property
    def cost(self) -> Cost:
        steps = self.config.steps if self.name == "pgd" else 0
        return Cost(1 + steps + (steps > 0), steps).times(self.masks.count)

    def sample(self) -> tuple[MaskedView, int]:
        """The view under its first mask alone, and the number of masks."""
        return dataclasses.replace(self, masks=dataclasses.replace(self.masks, count=1)), self.masks.count

    def stand_in(self, tried: View, columns: Mapping[str, Any]) -> dict[str, Any]:
        right = columns[f"right@{tried.name}/0"]
        each = {f"right@{self.name}/{number}": right for number in range(self.masks.count)}
        return super().stand_in(tried, columns) | each

    def columns(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> ViewColumns:
        if self.places:
            return super().columns(verifier, x, y, index)
        right, confidences = {}, []
        for number in range(self.masks.count):
            logits = finite_logits(verifier, self.show(verifier, x, y, index, number), self.name)
            right[f"right@{self.name}/{number}"] = logits.argmax(dim=1) == y
            confidences.append(confidence(logits, y))
        each = torch.stack(confidences)
        return right | {f"confidence@{self.name}": each.mean(dim=0), f"least_confidence@{self.name}": each.amin(dim=0)}

    def shown(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Iterator[Shown]:
        rows = torch.arange(len(x), device=x.device)
        for number in range(self.masks.count):
            yield Shown(self.show(verifier, x, y, index, number), rows)

    def from_classes(self, classes: Sequence[Tensor], rows: Sequence[Tensor], *, y: Tensor) -> ViewColumns:
        return {f"right@{self.name}/{number}": part[:, 0] == y for number, part in enumerate(classes)}

    def show(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor, number: int) -> Tensor:
        """The images, damaged inside their mask of this number and unchanged everywhere else."""
        keys = randomness.make_keys(index, self.seed, number)
        with verifier.runtime.arithmetic("fp32"):
            covered = self.masks.pixels(x, keys)
            return torch.where(covered, self._damaged(verifier, x, y, keys, covered), x)

    def _damaged(self, verifier: Verifier, x: Tensor, y: Tensor, keys: Tensor, covered: Tensor) -> Tensor:
        shape = tuple(x.shape[1:])
        if self.name == "occlude":
            return randomness.uniform(keys, shape, stream=1)
        if self.name == "noise":
            return (x + self.config.noise * randomness.normal(keys, shape, stream=2)).clamp(0, 1)
        if self.name == "drop":
            return torch.zeros_like(x) if self.config.fill == "zero" else x.mean(dim=(2, 3), keepdim=True)
        return self._climbed(verifier, x, y, keys, covered)

    def _climbed(self, verifier: Verifier, x: Tensor, y: Tensor, keys: Tensor, covered: Tensor) -> Tensor:
        """PGD on a model that sees nothing but the covered pixels change."""
        threat, size = self.config.threat, verifier.batch_size
        # a random point of the other balls would spend its radius on pixels that the model does not see
        attack = Ascent(threat=threat, steps=self.config.steps, start="random" if threat.norm == "linf" else "clean")
        parts = zip(*(tensor.split(size) for tensor in (x, y, keys, covered)), strict=True)
        try:
            with torch.enable_grad():
                damaged = [
                    attack.search(_CoveredOnly(verifier.model, image, hole), image, label, keys=key).x_adv
                    for image, label, key, hole in parts
                ]
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            verifier.batch_size = size // 2
            torch.cuda.empty_cache()
            return self._climbed(verifier, x, y, keys, covered)
        return torch.cat(damaged)


class _CoveredOnly(nn.Module):
    """A model that sees only the covered pixels of its input; all others are those of `x`."""

    def __init__(self, model: nn.Module, x: Tensor, covered: Tensor) -> None:
        super().__init__()
        self.model, self.x, self.covered = model, x, covered

    def forward(self, x: Tensor) -> Tensor:
        return self.model(torch.where(self.covered, x, self.x))


def patch_views(
    config: PatchConfig, model: nn.Module, shape: Sequence[int], seed: int, *, confidence: bool = True
) -> list[MaskedView]:
    """One view per kind of damage, with size and number of patches for images C×H×W of this model."""
    masks, chosen = _make_masks(config, model, torch.empty(1, *shape))
    common = {
        "share": masks.share, "patches": masks.patches, "patch_size": masks.size, "masks": masks.count,
        "choose": config.choose, "seed": seed, **chosen,
    }  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "noise": {"noise": config.noise}, "drop": {"fill": config.fill},
        "pgd": {"threat": str(config.threat), "steps": config.steps},
    }  # fmt: skip
    return [
        MaskedView(
            name=kind,
            masks=masks,
            config=config,
            seed=seed,
            confidence=confidence,
            settings={"kind": kind, **common, **own.get(kind, {})},
        )
        for kind in dict.fromkeys(config.kinds)
    ]


def _make_masks(config: PatchConfig, model: nn.Module, like: Tensor) -> tuple[Masks, dict[str, Any]]:
    """The masks, and the digest of the occluder that chooses them, if one does."""
    if config.occluder is not None:
        file = find_occluder(config.occluder)
        occluder = load_occluder(file).eval()
        if like.shape[2:] != (occluder.image_size, occluder.image_size):
            made_for = f"{occluder.image_size}×{occluder.image_size}"
            raise UserError(f"{file} is made for images of {made_for}, found {like.shape[2]}×{like.shape[3]}")
        masks = Masks(
            count=1, patches=occluder.count, rows=occluder.side, columns=occluder.side, size=occluder.patch_size,
            share=occluder.share, occluder=occluder,
        )  # fmt: skip
        return masks, {"occluder": sha256(file)[:12]}
    share = 0.1 if config.share is None else config.share
    settled, _ = Occlusion(share=share, patch_size=config.patch_size).settle(model, like)
    assert settled.patch_size is not None and settled.patches is not None
    rows, columns = grid(like, settled.patch_size)
    count = 100 if config.masks is None else config.masks
    return Masks(
        count=count, patches=settled.patches, rows=rows, columns=columns, size=settled.patch_size, share=share
    ), {}
