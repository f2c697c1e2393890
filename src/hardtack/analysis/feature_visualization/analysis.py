"""Images that maximise the probability of a class, or the activation of a unit, by gradient ascent from noise.

The method for classes is that of Debenedetti ("Adversarially robust vision transformers", 2022): 100 steps of targeted
PGD from noise, within an l2 radius of 15. For a robust model the result resembles the class; for a model that is not
robust it remains noise. For units the same search maximises their mean activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, mean_score
from hardtack.analysis.other_models import read_others
from hardtack.analysis.pictures import as_picture
from hardtack.attacks import Ascent, ascent_step
from hardtack.attacks.outcome import Step
from hardtack.base import randomness
from hardtack.base.annotations import MODELS
from hardtack.base.config import SEVERAL, check
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import analyses
from hardtack.evaluation.threat_stages import default_batch
from hardtack.models import tap
from hardtack.models.parts import short_name
from hardtack.threats import Threat

FIFTEEN = Threat("l2", Fraction(15))


def _words(value: Any) -> Any:
    """Class names as a list of strings. They are not split at commas, because some names contain one."""
    return [str(word) for word in (value if isinstance(value, list | tuple) else [value])]


Classes = Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]
Channels = Annotated[tuple[Annotated[int, Field(ge=0)], ...], SEVERAL, Field(min_length=1)]


@analyses.register("feature_visualization", papers=("xcit",))
@dataclass(frozen=True, kw_only=True)
class FeatureVisualization(OverImages):
    """Images that maximise the probability of a class or the activation of a unit, from noise or from images.

    n          the number of images
    start      noise (uniform; one image for each class or unit), or image: the first n images of the data
    classes    target classes, names or numbers; null: from noise the first n, from an image another class at random
    block      visualise units of this block instead of classes: its name, or its number from 0; null: classes
    channels   the channels of the block; null: the first n
    threat     the largest distance from the start; the thesis has l2:15 for 224 pixels, which is large for 32 pixels
    steps      steps of gradient ascent; their total length is 1.5 times the radius
    others     further models (run folders, weights files, published names) that classify the images of classes
    """

    later_settings: ClassVar[tuple[str, ...]] = ("others",)

    n: Annotated[int, Field(ge=1)] = 10
    start: Literal["noise", "image"] = "noise"
    classes: Classes | None = None
    block: str | int | None = None
    channels: Channels | None = None
    threat: Threat = FIFTEEN
    steps: Annotated[int, Field(ge=1)] = 100
    others: Annotated[Any, MODELS] = ()

    def __post_init__(self) -> None:
        check(self)
        object.__setattr__(self, "others", read_others(self.others))
        if self.others and self.block is not None:
            raise UserError("others classify images of classes; leave out others, or block")
        if self.channels is not None and self.block is None:
            raise UserError("channels belong to a block: give block=NAME too")
        if self.classes is not None and self.block is not None:
            raise UserError("give classes, or a block with channels, not both")

    def fingerprints(self) -> tuple[str, ...]:
        """Digests of the weights of the other models."""
        return tuple(other.fingerprint() for other in self.others)

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Rows(self, context)


@analyses.register("visions", help="the name of feature_visualization in version 0.1.0, under which it has its old ids")
@dataclass(frozen=True, kw_only=True)
class Visions(FeatureVisualization):
    """`feature_visualization` under its name in version 0.1.0, so that ids in existing run folders stay valid."""


class _Rows:
    """A row for each visualized class or unit."""

    def __init__(self, settings: FeatureVisualization, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        x, _, _ = context.images(0, 1)
        self.driven: nn.Module = context.model
        self.block = ""
        if settings.block is not None:
            self.driven = _Units(context.model, x, settings.block)
            self.block = self.driven.name
        with torch.no_grad():
            self.outputs = self.driven(x).shape[1]
        self.others = {other.label: context.another(other) for other in settings.others}
        self.goals = self._goals()
        self.length = context.count if settings.start == "image" else min(settings.n, len(self.goals))
        self.at_once = settings.batch_size or default_batch(context.shape, context.device.type)
        self.attack = Ascent(
            threat=settings.threat, steps=settings.steps, relative_step=1.5 / settings.steps, start="clean",
            seed=context.seed, keep="last",
        )  # fmt: skip

    def rows(self, start: int, stop: int) -> Arrays:
        x, y, index, goal = self._starts(start, stop)
        with torch.no_grad():
            before = self._driven_at(x, goal)
        if self.block:
            x_adv = self.attack.search(self.driven, x, goal, step=_towards_the_unit).x_adv
        else:
            x_adv = self.attack.search(self.driven, x, y, target=goal).x_adv
        with torch.no_grad():
            after, predicted = self._driven_at(x_adv, goal), self.context.model(x_adv).argmax(dim=1)
        if not (before.isfinite() & after.isfinite()).all():
            raise UserError(
                "the model returns NaN or infinity on the images that gradient ascent made: there is nothing to show"
            )
        change = x_adv - x
        largest = change.flatten(1).abs().amax(dim=1).clamp_min(1e-12)[:, None, None, None]
        arrays = {
            "index": index, "label": y, "goal": goal, "before": before, "after": after, "predicted": predicted,
            "size": self.attack.threat.size(change), "start": as_picture(x), "vision": as_picture(x_adv),
            "change": as_picture(0.5 + change / largest / 2),
        }  # fmt: skip
        if self.others:
            with torch.no_grad():
                seen = [model(x_adv).argmax(dim=1) for model in self.others.values()]
            arrays["seen_by_others"] = torch.stack(seen, dim=1)
        return {name: value.detach().cpu().numpy() for name, value in arrays.items()}

    def conclude(self, arrays: Arrays) -> Conclusion:
        threat = str(self.attack.threat)
        metric = "vision_activation" if self.block else "vision_confidence"
        facts = {
            "of": "unit" if self.block else "class", "block": self.block, "threat": threat,
            "steps": self.settings.steps, "start": self.settings.start,
            "goals": [self._name(int(goal)) for goal in arrays["goal"]],
        }  # fmt: skip
        scores = [mean_score(metric, arrays["after"].astype(np.float64), threat=threat)]
        if not self.block:
            scores.append(mean_score("vision_success", arrays["predicted"] == arrays["goal"], threat=threat))
        for place, label in enumerate(self.others):
            right = arrays["seen_by_others"][:, place] == arrays["goal"]
            scores.append(mean_score("vision_accuracy", right, column=label, threat=threat))
        stayed = int((arrays["size"] == 0).sum())
        note = f"{stayed} of {self.length} images did not change: the model's gradient is zero there"
        return Conclusion(scores=scores, facts=facts, notes=[note] if stayed else [])

    def _starts(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Start images, labels, indices and goals of these rows."""
        device, seed = self.context.device, self.context.seed
        if self.settings.start == "noise":
            goal = torch.tensor(self.goals[start:stop], device=device)
            keys = randomness.make_keys(
                goal, seed
            )  # the noise of a class does not depend on which other classes are visualized
            return randomness.uniform(keys, self.context.shape), goal, goal, goal
        x, y, index = self.context.images(start, stop)
        if self.settings.classes is None and not self.block:
            away = 1 + randomness.integers(randomness.make_keys(index, seed), self.outputs - 1)
            return x, y, index, (y + away) % self.outputs
        goal = torch.tensor([self.goals[row % len(self.goals)] for row in range(start, stop)], device=device)
        return x, y, index, goal

    def _driven_at(self, x: Tensor, goal: Tensor) -> Tensor:
        """The probability of the class, or the activation of the unit."""
        outputs = self.driven(x).float()
        return (outputs if self.block else outputs.softmax(dim=1)).gather(1, goal[:, None])[:, 0]

    def _goals(self) -> list[int]:
        if self.block:
            wanted = list(self.settings.channels or range(min(self.settings.n, self.outputs)))
            if beyond := [goal for goal in wanted if goal >= self.outputs]:
                raise UserError(f"{self.block} has channels 0 to {self.outputs - 1}, found {beyond[0]}")
            return wanted
        if self.outputs < 2:
            raise UserError("a model with one output has no classes to visualize; give block=NAME")
        if self.settings.classes is None:
            return list(range(self.outputs))
        return [self._number(goal) for goal in self.settings.classes]

    def _number(self, name: str) -> int:
        classes = list(self.context.classes)
        if name in classes:
            return classes.index(name)
        if name.isdecimal() and int(name) < self.outputs:
            return int(name)
        hint = did_you_mean(name, classes) or f"; classes are numbered from 0 to {self.outputs - 1}"
        raise UserError(f"there is no class '{name}'{hint}")

    def _name(self, goal: int) -> str:
        if self.block:
            return f"channel {goal}"
        classes = self.context.classes
        return str(classes[goal]) if goal < len(classes) else str(goal)


class _Units(nn.Module):
    """A model that returns the mean activations of a block's channels over the patches of the image: N×D."""

    def __init__(self, model: nn.Module, x: Tensor, block: str | int) -> None:
        super().__init__()
        self.model = model
        with tap(model, attention=False) as taps, torch.no_grad():
            model(x)
        names = [short_name(name) for name in taps.feature_names]
        if not names:
            raise UserError(f"{taps.note}; units are channels of blocks")
        self.place = _find(block, names)
        self.name, self.prefix = names[self.place], taps.prefixes[self.place]
        if taps.features[self.place].shape[1] <= self.prefix:
            self.prefix = 0  # class attention blocks have only the class token

    def forward(self, x: Tensor) -> Tensor:
        with tap(self.model, attention=False) as taps:
            self.model(x)
        mean: Tensor = taps.features[self.place][:, self.prefix :].mean(dim=1)
        return mean


def _find(block: str | int, names: list[str]) -> int:
    written = short_name(str(block))
    if written in names:
        return names.index(written)
    if written.lstrip("-").isdecimal() and -len(names) <= int(written) < len(names):
        return int(written) % len(names)
    hint = did_you_mean(written, names) or f"; the model has {len(names)}: {names[0]} to {names[-1]}"
    raise UserError(f"there is no block '{block}'{hint}")


def _towards_the_unit(*args: Any, **settings: Any) -> Step:
    """A step that increases the output of the goal itself, not a loss of all outputs."""
    return ascent_step(*args, **{**settings, "loss": _output})


def _output(outputs: Tensor, goal: Tensor, reference: Tensor | None) -> Tensor:
    return outputs.gather(1, goal[:, None])[:, 0]
