"""Images with a few damaged patches: figures 1 and 6 of the RSPC paper, for any model.

Figure 1 shows an image whose same random patches are attacked, made noisy and occluded, with the probability of the
true class under each; figure 6 the patches that a trained occluder chooses. `suite=patches` measures accuracy over many
masks; here every image has one, and the mask, the pictures and the probabilities are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, mean_score
from hardtack.analysis.pictures import as_picture
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.registry import analyses
from hardtack.evaluation.masks import USUAL, Kinds, PatchConfig, patch_views
from hardtack.evaluation.threat_stages import default_batch
from hardtack.evaluation.views import confidence, finite_logits
from hardtack.models import find_occluder
from hardtack.models.files import sha256
from hardtack.threats import Threat


@analyses.register("patch_examples", papers=("rspc",))
@dataclass(frozen=True, kw_only=True)
class PatchExamples(OverImages):
    """The probability of the true class when the same patches of an image are damaged in several ways.

    kinds        kinds of damage, as patches.kinds of suite=patches
    share        share of the patches that are damaged; null: 0.1
    patch_size   side of a patch in pixels; null: the model's own, else the usual one
    occluder     a file or run with a trained occluder, which chooses the patches and has its own share and patch size;
                 null: chance
    mask         number of the random mask; 0 is the first of suite=patches
    noise        of noise: standard deviation of what is added
    fill         of drop: black (zero) or the image's mean colour
    threat       of pgd: how far the damaged pixels may move
    steps        of pgd: steps of gradient ascent
    shown        images whose pictures are stored
    """

    kinds: Kinds = ("pgd", "noise", "occlude")
    share: Number | None = None
    patch_size: Annotated[int, Field(ge=1)] | None = None
    occluder: str | None = None
    mask: Annotated[int, Field(ge=0)] = 0
    noise: Number = USUAL.noise
    fill: Literal["zero", "mean"] = USUAL.fill
    threat: Threat = USUAL.threat
    steps: Annotated[int, Field(ge=1)] = USUAL.steps
    shown: Annotated[int, Field(ge=0)] = 6

    def __post_init__(self) -> None:
        check(self)
        self.patches()

    def patches(self) -> PatchConfig:
        """The same settings for suite=patches."""
        return PatchConfig(
            kinds=self.kinds, share=self.share, patch_size=self.patch_size, occluder=self.occluder,
            choose="random" if self.occluder is None else "occluder", masks=1 if self.occluder is None else None,
            noise=self.noise, fill=self.fill, threat=self.threat, steps=self.steps,
        )  # fmt: skip

    def fingerprints(self) -> tuple[str, ...]:
        return (sha256(find_occluder(self.occluder))[:12],) if self.occluder else ()

    def begin(self, context: AnalysisContext) -> RowWork:
        return _PatchExamples(self, context)


class _PatchExamples:
    """A row for each image."""

    def __init__(self, settings: PatchExamples, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        self.views = patch_views(settings.patches(), context.model, context.shape, context.seed)
        self.verifier = Verifier(context.model, context.runtime)
        self.length = context.count
        self.at_once = settings.batch_size or min(64, default_batch(context.shape, context.device.type))

    def rows(self, start: int, stop: int) -> Arrays:
        x, y, index = self.context.images(start, stop)
        logits = [finite_logits(self.verifier, shown, name) for name, shown in self._shown(x, y, index)]
        keys = randomness.make_keys(index, self.context.seed, self.settings.mask)
        with torch.no_grad():
            mask = self.views[0].masks.cells(x, keys)
        measured = {
            "index": index, "label": y, "mask": mask,
            "confidence": torch.stack([confidence(each, y) for each in logits], dim=1),
            "predicted": torch.stack([each.argmax(dim=1) for each in logits], dim=1),
        }  # fmt: skip
        return {name: _numpy(value) for name, value in measured.items()}

    def _shown(self, x: Tensor, y: Tensor, index: Tensor) -> list[tuple[str, Tensor]]:
        """The images, then the images under each kind of damage."""
        number = self.settings.mask
        return [("clean", x), *((view.name, view.show(self.verifier, x, y, index, number)) for view in self.views)]

    def conclude(self, arrays: Arrays) -> Conclusion:
        names, masks = ["clean", *(view.name for view in self.views)], self.views[0].masks
        scores = [
            mean_score(
                "true_class_confidence", arrays["confidence"][:, at], column=name,
                threat=str(self.settings.threat) if name == "pgd" else None,
            )
            for at, name in enumerate(names)
        ]  # fmt: skip
        facts = {
            "shown_as": names, "patches": masks.patches, "of": masks.rows * masks.columns, "patch_size": masks.size,
            "chosen_by": "random" if masks.occluder is None else "occluder",
            "occluder": next(iter(self.settings.fingerprints()), None),
        }  # fmt: skip
        return Conclusion(scores=scores, facts=facts, arrays=self._pictures())

    def _pictures(self) -> Arrays:
        """`shown`: images × (clean, kinds…) × H×W×3 uint8."""
        count, parts = min(self.settings.shown, self.length), []
        for start in range(0, count, self.at_once):
            batch = self.context.images(start, min(count, start + self.at_once))
            parts.append(torch.stack([as_picture(shown) for _, shown in self._shown(*batch)], dim=1))
        return {"shown": _numpy(torch.cat(parts))} if parts else {}


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
