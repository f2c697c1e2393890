"""Disturbances of images: occluded patches, noise, a corruption, or an attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from hardtack.analysis.adversary import blind_notes, make_adversary, moved
from hardtack.analysis.analysis import AnalysisContext
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.base.annotations import AN_ATTACK, Shown
from hardtack.base.config import Number
from hardtack.base.errors import UserError
from hardtack.data.corruptions import constants_for, corrupt
from hardtack.data.corruptions.choose import chosen_types
from hardtack.evaluation.masks import PatchConfig, patch_views
from hardtack.models import find_occluder
from hardtack.models.files import sha256
from hardtack.threats import Threat

Disturb = Literal["occlude", "noise", "corrupt", "attack"]
_TAKEN_BY = {
    "share": "occlude", "patch_size": "occlude", "occluder": "occlude", "sigma": "noise", "type": "corrupt",
    "severity": "corrupt", "threat": "attack", "attack": "attack",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Disturbed:
    """The settings of an analysis that disturbs images.

    disturb      occlude: uniform noise replaces some patches; noise: Gaussian noise on the image; corrupt: a
                 corruption; attack: an attack
    masks        random disturbances of every image
    share        of occlude: share of the patches; null: 0.1
    patch_size   of occlude: side of a patch in pixels; null: the model's own, else the usual one
    occluder     of occlude: a file or run with a trained occluder that chooses the patches; null: chance
    sigma        of noise: its standard deviation; null: 0.1
    type         of corrupt: the corruption; null: gaussian_noise
    severity     of corrupt: 1 to 5; null: 3
    threat       of attack: norm and radius; null: that of an attack that has one of its own, else linf:8/255
    attack       of attack: its name or settings, as in evaluate; null: PGD of 20 steps
    """

    disturb: Disturb = "occlude"
    masks: Annotated[int, Field(ge=1)] = 1
    share: Number | None = None
    patch_size: Annotated[int, Field(ge=1)] | None = None
    occluder: str | None = None
    sigma: Annotated[float, Field(gt=0)] | None = None
    type: Annotated[str, Shown("corruption", "hardtack list corruptions")] | None = None
    severity: Annotated[int, Field(ge=1, le=5)] | None = None
    threat: Threat | None = None
    attack: Annotated[Any, AN_ATTACK] = None

    def check_disturbance(self) -> None:
        for name, kind in _TAKEN_BY.items():
            if getattr(self, name) is not None and kind != self.disturb:
                raise UserError(f"{name} is a setting of disturb={kind}, not of disturb={self.disturb}")
        if self.disturb == "occlude":
            self._patches()
            if self.occluder is not None and self.masks > 1:
                raise UserError("an occluder chooses one mask for each image: leave out the setting masks")
        if self.type is not None and len(chosen_types((self.type,))) != 1:
            raise UserError(f"type is one corruption, found the group '{self.type}'")
        if self.disturb == "attack":
            self._adversary()

    def fingerprints(self) -> tuple[str, ...]:
        return (sha256(find_occluder(self.occluder))[:12],) if self.occluder else ()

    def _patches(self) -> PatchConfig:
        if self.occluder is not None:
            return PatchConfig(
                kinds=("occlude",), choose="occluder", occluder=self.occluder, share=self.share,
                patch_size=self.patch_size,
            )  # fmt: skip
        return PatchConfig(kinds=("occlude",), share=self.share, patch_size=self.patch_size, masks=self.masks)

    def _adversary(self) -> Any:
        return make_adversary(self.attack or {}, self.threat)


Show = Callable[[Tensor, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """`show(x, y, index, number)` returns the images under disturbance `number` (from 0). `words` describe it."""

    show: Show
    words: str
    name: str  # of the disturbed image, in a heading: `occluded`
    threat: str | None = None
    notes: Callable[[], list[str]] = list  # computed after the analysis


def make_disturbance(settings: Disturbed, context: AnalysisContext) -> Disturbance:
    """The disturbance for the model and the images of the context."""
    seed = context.seed
    if settings.disturb == "occlude":
        (view,) = patch_views(settings._patches(), context.model, context.shape, seed)
        verifier = Verifier(context.model, context.runtime)
        words = f"uniform noise in place of {view.masks.words}"
        return Disturbance(
            show=lambda x, y, index, number: view.show(verifier, x, y, index, number), words=words, name="occluded"
        )
    if settings.disturb == "noise":
        sigma = settings.sigma or 0.1

        def noisy(x: Tensor, y: Tensor, index: Tensor, number: int) -> Tensor:
            keys = randomness.make_keys(index, seed, number)
            return (x + sigma * randomness.normal(keys, tuple(x.shape[1:]), stream=3)).clamp(0, 1)

        return Disturbance(
            show=noisy, words=f"Gaussian noise of standard deviation {sigma:g}{_times(settings)}", name="noisy"
        )
    if settings.disturb == "corrupt":
        type_, severity = settings.type or "gaussian_noise", settings.severity or 3
        constants = constants_for(max(context.shape[1:]))

        def corrupted(x: Tensor, y: Tensor, index: Tensor, number: int) -> Tensor:
            return corrupt(x, index, type_, severity, constants=constants, seed=seed + number)

        description = f"{type_.replace('_', ' ')} of severity {severity}, {constants} constants{_times(settings)}"
        return Disturbance(show=corrupted, words=description, name="corrupted")
    adversary = settings._adversary()

    def attacked(x: Tensor, y: Tensor, index: Tensor, number: int) -> Tensor:
        return moved(adversary, context.model, x, y, randomness.make_keys(index, number), seed)

    steps = getattr(adversary, "steps", None)
    description = (
        f"{_called(settings.attack)}{f' of {steps} steps' if steps else ''} in {adversary.threat}{_times(settings)}"
    )
    return Disturbance(
        show=attacked, words=description, name="attacked", threat=str(adversary.threat),
        notes=lambda: blind_notes(adversary, context),
    )  # fmt: skip


def _called(attack: Any) -> str:
    if isinstance(attack, str):
        return attack
    return str(attack.get("name", "pgd")) if isinstance(attack, dict) else "pgd" if attack is None else repr(attack)


def _times(settings: Disturbed) -> str:
    return f", {settings.masks} times" if settings.masks > 1 else ""
