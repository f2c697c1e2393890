"""RSPC (Guo, Stutz and Schiele 2023): be right on the clean image, with equal features when patches are hidden.

    CE(f(x), y) + weight · A(x, x̂),   A = mean over blocks of the mean squared difference of their outputs,

where x̂ has a `share` of its patches replaced by noise, chosen by an occluder that maximises the same loss: its gradient
comes from the model's backward pass with the sign reversed. Damaged and clean images pass the network as one batch of
2N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import preserve_state
from hardtack.attacks.patches import cover, grid, pick
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.models import Normalize, Occluder, save_occluder
from hardtack.models.blocks import class_name
from hardtack.models.tokens import default_patch_size
from hardtack.objectives.contract import Objective, ObjectiveConfig
from hardtack.objectives.patch_augment import augment_patches
from hardtack.objectives.rspc_features import Alignment
from hardtack.objectives.rspc_occluder import OccluderConfig, OccluderPlayer
from hardtack.objectives.standard import Smoothing, accuracy

_MASK, _NOISE, _PATCHES = 1, 2, 3  # what the random numbers of an image are for


@objectives.register("rspc", help="clean cross-entropy + weight × what hidden patches change in the features")
@dataclass(frozen=True, kw_only=True)
class RSPCConfig(ObjectiveConfig):
    """The settings of objective=rspc.

    share                share of the patches that are hidden (0.1: 20 of 196, 7 of 64, 2 of 16)
    weight               weight of the alignment of features
    warmup_epochs        epochs over which that weight rises from 0
    patch_size           side of a patch in pixels; null: the model's own, else the usual one (docs/patches.md)
    choose               how patches are chosen: learned, by an occluder that is trained with the model, or at random
    damage               occlude: noise in place of the pixels; drop: `fill` in place of them
    fill                 of damage=drop: black (zero), or the image's mean colour
    noise                pixel: uniform on [0,1]; normalised: uniform on [0,1] in the model's normalised units, as in
                         the published code, which in pixels is from the mean to one standard deviation above it
    on                   clean: cross-entropy of the clean images only; both: the mean of clean and damaged ones
    detach_clean         no gradient from the alignment into the clean branch
    occluder_objective   alignment: the occluder maximises the loss that the model minimises; ce: the cross-entropy of
                         the damaged images, which costs one more forward and backward pass of them; both: the sum
    occluder             how the occluder is updated
    patch_augment        add the loss of images with augmented patches, the mean of both: twice the cost
    label_smoothing      share of the label that is spread over all classes

    Paper: Guo, Stutz and Schiele 2023, Improving Robustness of Vision Transformers by Reducing Sensitivity to Patch
        Corruptions (CVPR)
    """

    share: Number = 0.1
    weight: Annotated[float, Field(ge=0)] = 5e-3
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    patch_size: Annotated[int, Field(ge=1)] | None = None
    choose: Literal["learned", "random"] = "learned"
    damage: Literal["occlude", "drop"] = "occlude"
    fill: Literal["zero", "mean"] = "zero"
    noise: Literal["pixel", "normalised"] = "pixel"
    on: Literal["clean", "both"] = "clean"
    detach_clean: bool = False
    occluder_objective: Literal["alignment", "ce", "both"] = "alignment"
    occluder: OccluderConfig = field(default_factory=OccluderConfig)
    patch_augment: bool = False
    label_smoothing: Smoothing = 0.0

    def __post_init__(self) -> None:
        check(self)
        if not 0 < self.share <= 1:
            raise UserError(f"share must be in (0, 1], found {self.share}")

    def notes(self, *, epochs: float) -> Iterator[str]:
        if self.warmup_epochs >= epochs:
            yield "the whole run is warm-up: objective.warmup_epochs is not below train.epochs"
        if self.choose == "random" and (self.occluder, self.occluder_objective) != (OccluderConfig(), "alignment"):
            yield "the settings of the occluder have no effect: objective.choose is random"
        if self.damage == "drop" and self.noise != "pixel":
            yield "objective.noise has no effect: objective.damage is drop"
        if self.damage == "occlude" and self.fill != "zero":
            yield "objective.fill has no effect: objective.damage is occlude; drop uses it"

    def build(self, model: nn.Module) -> RSPC:
        return RSPC(model, self)


class RSPC(Objective):
    config: RSPCConfig

    def __init__(self, model: nn.Module, config: RSPCConfig) -> None:
        super().__init__(model, config)
        self.alignment = Alignment(model, detach_clean=config.detach_clean)
        if config.weight > 0 and not self.alignment.blocks:
            raise UserError(
                f"{class_name(model)} has no blocks that hardtack recognises, so there are no features to align; give "
                "its blocks a method branches(), or train without alignment: weight=0 on=both"
            )
        self.normalise = next((part for part in model.modules() if isinstance(part, Normalize)), None)
        self.patch_size = config.patch_size
        self.opponent = self._make_opponent() if config.choose == "learned" else None
        self.has_masks = self.opponent is not None
        # where the model's loss is what the occluder maximises, one gradient serves both
        wanted = {"alignment": False, "ce": config.weight > 0 or config.on == "clean", "both": config.on == "clean"}
        self.own_gradient = wanted[config.occluder_objective]

    @property
    def optimised(self) -> nn.Module:
        """The model alone: the occluder is updated in `finish_step`."""
        return self.model

    def _make_opponent(self) -> OccluderPlayer:
        side = getattr(self.model, "image_size", None)
        if not isinstance(side, int):
            raise UserError(
                "the occluder needs the size of the images, and this model takes images of any size: load or wrap it "
                "with image_size=…, or use objective.choose=random"
            )
        size = self._settle_size(torch.empty(1, 3, side, side))
        statistics = {}
        if self.normalise is not None:
            statistics = {key: getattr(self.normalise, key).flatten().tolist() for key in ("mean", "std")}
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(self.config.occluder.seed)
            occluder = Occluder(side, size, self.config.share, **statistics)
        return OccluderPlayer(occluder, self.config.occluder)

    # ------------------------------------------------------------ the loss

    def prepare(
        self, x: Tensor, y: Tensor, *, keys: Tensor | None = None, epoch: float = math.inf
    ) -> dict[str, Tensor]:
        """The keys, the weight at this time and, where the occluder has its own objective, the gradient of its mask."""
        keys = randomness.fresh_keys(len(x), x.device) if keys is None else keys
        self._settle_size(x)
        rising = epoch < self.config.warmup_epochs
        share = epoch / self.config.warmup_epochs if rising else 1.0
        weight = torch.full((), self.config.weight * share, device=x.device)
        prepared = {"keys": keys, "weight": weight}
        if self.opponent is not None and self.own_gradient:
            prepared["mask_gradient"] = self._mask_gradient(*self._branches(x, y, keys))
        return prepared

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        keys: Tensor | None = None,
        weight: Tensor | None = None,
        mask_gradient: Tensor | None = None,
    ) -> dict[str, Tensor]:
        if keys is None or weight is None:
            return self.forward(x, y, **self.prepare(x, y))
        images = len(x)
        x, y, keys = self._branches(x, y, keys)
        mask = self._mask(x, keys)
        chosen = mask.detach() if mask_gradient is not None and self.config.occluder_objective == "ce" else mask
        self.alignment.begin()
        damaged, clean = self.model(torch.cat([self._damaged(x, chosen, keys), x])).float().chunk(2)
        distance = self.alignment.end()
        natural = self._cross_entropy(clean, y)
        loss = (natural + self._cross_entropy(damaged, y)) / 2 if self.config.on == "both" else natural
        parts = {"natural_loss": natural.detach()}
        if distance is not None:
            loss = loss + weight * distance
            parts["alignment"] = distance.detach()
        if mask_gradient is not None:  # adds 0 to the loss, and its gradient to the mask
            term = (mask * mask_gradient).sum()
            loss = loss + (term - term.detach())
        parts |= {
            "accuracy": accuracy(clean[:images], y[:images]),
            "damaged_accuracy": accuracy(damaged[:images], y[:images]),
            "hidden_share": mask.detach().mean(),
            "mask_variety": _variety(mask.detach()),
        }
        if self.opponent is not None:  # of the previous step: that of this one is not there yet
            parts["occluder_gradient_norm"] = self.opponent.gradient_norm.clone()
        return {"loss": loss, **parts}

    def _cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, y, label_smoothing=self.config.label_smoothing)

    def _branches(self, x: Tensor, y: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batch, or with `patch_augment` the batch and its augmented copy, with the same weight in every mean."""
        if not self.config.patch_augment:
            return x, y, keys
        own = randomness.make_keys(keys, _PATCHES)
        changed = augment_patches(x, own, patch_size=self._size)
        return torch.cat([x, changed]), torch.cat([y, y]), torch.cat([keys, own])

    # ------------------------------------------------------------ masks

    def _mask(self, x: Tensor, keys: Tensor) -> Tensor:
        """1 where a patch is hidden, N×rows×columns."""
        if self.opponent is not None:
            return self.opponent(x, keys)
        rows, columns = grid(x, self._size)
        count = math.floor(self.config.share * (rows * columns - 1) + 1e-9) + 1
        return pick(randomness.uniform(randomness.make_keys(keys, _MASK), (rows, columns)), count).to(x.dtype)

    def masks(self, x: Tensor) -> Tensor:
        """The patches that the occluder hides, N×rows×columns; there is none where masks are drawn at random."""
        assert self.opponent is not None
        return self.opponent(x) > 0.5

    def _damaged(self, x: Tensor, mask: Tensor, keys: Tensor) -> Tensor:
        hidden = cover(mask, self._size, x)
        if self.config.damage == "drop":
            kept = (1 - hidden) * x
            return kept if self.config.fill == "zero" else kept + hidden * x.mean(dim=(2, 3), keepdim=True)
        noise = randomness.uniform(randomness.make_keys(keys, _NOISE), tuple(x.shape[1:]))
        if self.config.noise == "normalised" and self.normalise is not None:
            # the published code clamps to the images of 0 and 1 under ImageNet's statistics, which for CIFAR's, too,
            # lie outside of [0,1] or at its ends: no pixel of ours is there
            noise = (self.normalise.mean + self.normalise.std * noise).clamp(0, 1)
        return (1 - hidden) * x + hidden * noise

    def _settle_size(self, x: Tensor) -> int:
        """The size of a patch of images like x. It is measured here, because `forward` may be compiled."""
        self.patch_size = self.config.patch_size or default_patch_size(self.model, x)
        return self.patch_size

    @property
    def _size(self) -> int:
        assert self.patch_size is not None, "prepare comes first"
        return self.patch_size

    # ------------------------------------------------------------ the occluder

    def _mask_gradient(self, x: Tensor, y: Tensor, keys: Tensor) -> Tensor:
        """The gradient of the damaged images' cross-entropy in the mask, N×rows×columns; the model stays as it is."""
        with preserve_state(self.model):
            mask = self._mask(x, keys).detach().requires_grad_()
            loss = self._cross_entropy(self.model(self._damaged(x, mask, keys)).float(), y)
            return torch.autograd.grad(loss, mask)[0]

    def finish_step(self) -> None:
        if self.opponent is not None:
            self.opponent.step()

    def export(self, folder: Path, name: str) -> None:
        """The occluder, as NAME.occluder.safetensors."""
        if self.opponent is not None:
            save_occluder(folder / f"{name}.occluder.safetensors", self.opponent.occluder)


def _variety(mask: Tensor) -> Tensor:
    """How much the masks of a batch differ: 0 when all are the same, about 1 when they are drawn at random."""
    often, share = mask.mean(dim=0), mask.mean()
    return (often * (1 - often)).mean() / (share * (1 - share)).clamp_min(1e-6)
