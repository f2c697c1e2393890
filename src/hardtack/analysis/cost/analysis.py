"""The cost of a training step: passes and multiply-adds per image, seconds, and the speed that the run logged.

Figure 7 of the RSPC paper compares the training cost of RSPC and TRADES. One step of the run's objective is made on a
few random images with a copy of the model, and the passes are counted. A backward pass to the images has as many
multiply-adds as a forward pass, one to the weights twice as many: each linear layer has one product for its inputs'
gradient and one for its weights'. (Counters of backward passes are not used: torch's counts those of grouped
convolutions too high.)
"""

from __future__ import annotations

import copy
import statistics
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from hardtack.analysis.analysis import Analysis, AnalysisContext, Arrays, Conclusion, RowWork, Score
from hardtack.attacks import preserve_state
from hardtack.base import randomness
from hardtack.base.config import Choice, check, choose, read_yaml
from hardtack.base.cost import timed
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses, objectives
from hardtack.base.trust import stored_settings
from hardtack.models import Occluder
from hardtack.models.passes import count_passes, forward_multiply_adds
from hardtack.results import read_metrics

STANDARD = 3  # multiply-adds of an ordinary step, in forward passes: one forward, and a backward to the weights


@analyses.register("cost", papers=("rspc",))
@dataclass(frozen=True, kw_only=True)
class TrainingCost(Analysis):
    """What a training step costs, in passes, multiply-adds and seconds, against a step of ordinary training.

    objective    the objective whose steps are counted; null: that of the run; of a model without a run, ordinary
                 training
    image_size   side of the images in pixels; null: the model's own
    images       images in a step that is counted and timed
    repeats      repetitions of every timed step; 0: nothing is timed
    """

    objective: Annotated[Any, Choice(objectives)] = None
    image_size: Annotated[int, Field(ge=1)] | None = None
    images: Annotated[int, Field(ge=2)] = 4
    repeats: Annotated[int, Field(ge=0)] = 3

    def __post_init__(self) -> None:
        check(self)

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Cost(self, context)


class _Cost:
    """A single row."""

    length = at_once = 1

    def __init__(self, settings: TrainingCost, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        self.config = _run_config(context)
        chosen = settings.objective or choose(objectives, self.config.get("objective", "standard"))
        self.name = objectives.name_of(chosen) or type(chosen).__name__
        self.model = copy.deepcopy(context.model).train().requires_grad_(True)
        self.objective = chosen.build(self.model).to(context.device)
        self.occluder = next((part for part in self.objective.modules() if isinstance(part, Occluder)), None)
        size = settings.image_size or getattr(context.model, "image_size", None)
        if not isinstance(size, int):
            raise UserError("this model takes images of any size: say for which to count, cost.image_size=224")
        keys = torch.arange(settings.images, device=context.device)
        self.x = randomness.uniform(keys, (3, size, size))
        with torch.no_grad(), preserve_state(self.model):
            self.y = keys % self.model(self.x[:1]).shape[1]

    def rows(self, start: int, stop: int) -> Arrays:
        with torch.enable_grad(), torch.random.fork_rng(_generators(self.context.device)):
            with count_passes(self.model) as passes:
                self._step()
            attack, update = ([count / len(self.x) for count in pair] for pair in passes)
            forward = forward_multiply_adds(self.context.model, self.x)
            occluder = forward_multiply_adds(self.occluder, self.x) if self.occluder is not None else 0
            measured = {"attack": attack, "update": update, "forward": forward, "occluder": occluder}
            measured |= {f"{name}_s": seconds for name, seconds in self._times().items()}
        return {name: np.array([value], dtype=float) for name, value in measured.items()}

    def _step(self) -> None:
        prepared = self.objective.prepare(self.x, self.y)
        self.objective(self.x, self.y, **prepared)["loss"].backward()
        self.objective.finish_step()
        self.objective.zero_grad(set_to_none=True)

    def _times(self) -> dict[str, float]:
        """Seconds of one call on all images."""
        work = {"standard": self._standard_step, "step": self._step, "attack_step": self._attack_step}
        if self.occluder is not None:
            work["occluder"] = self._choose_patches
        for call in work.values() if self.settings.repeats else ():
            call()  # the first call sets things up
        return {name: timed(call, self.settings.repeats) for name, call in work.items() if self.settings.repeats}

    def _standard_step(self) -> None:
        F.cross_entropy(self.model(self.x), self.y).backward()
        self.model.zero_grad(set_to_none=True)

    def _attack_step(self) -> Tensor:
        """The gradient of the loss in the images: what every step of an attack computes."""
        with preserve_state(self.model), torch.enable_grad():
            x = self.x.clone().requires_grad_()
            return torch.autograd.grad(F.cross_entropy(self.model(x), self.y), x)[0]

    @torch.no_grad()
    def _choose_patches(self) -> Tensor:
        assert self.occluder is not None
        out: Tensor = self.occluder(self.x)
        return out

    # ------------------------------------------------------------ the conclusion

    def conclude(self, arrays: Arrays) -> Conclusion:
        attack, update = arrays["attack"][0], arrays["update"][0]
        sharpness = dict(self.config.get("sharpness") or {}).get("name", "none")
        if self.settings.objective is None and sharpness != "none":  # two gradients for every update
            update = 2 * update
        forward, occluder = float(arrays["forward"][0]), float(arrays["occluder"][0])
        searched = forward * (attack[0] + attack[1])
        step = searched + forward * (update[0] + 2 * update[1]) + STANDARD * occluder
        scores = [
            *_scores("forward_passes", {"attack": attack[0], "update": update[0]}),
            *_scores("backward_passes", {"attack": attack[1], "update": update[1]}),
            *_scores(
                "multiply_adds",
                {"model": forward, "attack": searched, "step": step, "standard step": STANDARD * forward}
                | ({"occluder": occluder} if occluder else {}),
            ),
            *_scores("relative_step_cost", {"": step / (STANDARD * forward)}),
            *(_scores("attack_step_over_occluder", {"": 2 * forward / occluder}) if occluder else []),
            *self._time_scores(arrays),
            *self._logged(),
        ]
        facts = {"objective": self.name, "image_size": self.x.shape[-1], "images": len(self.x), "sharpness": sharpness}
        return Conclusion(scores=scores, facts=facts)

    def _time_scores(self, arrays: Arrays) -> list[Score]:
        seconds = {name.removesuffix("_s"): float(value[0]) for name, value in arrays.items() if name.endswith("_s")}
        if not seconds:
            return []
        scores = _scores("seconds", {name.replace("_", " "): value for name, value in seconds.items()})
        scores += _scores("relative_step_time", {"": seconds["step"] / seconds["standard"]})
        if "occluder" in seconds:
            ratio = seconds["attack_step"] / max(seconds["occluder"], 1e-12)
            scores += _scores("attack_step_time_over_occluder", {"": ratio})
        return scores

    def _logged(self) -> list[Score]:
        """The median speed in the run's metrics, where it was trained here with this objective."""
        if self.context.folder is None or self.settings.objective is not None:
            return []
        lines = [line for line in read_metrics(self.context.folder) if line.get("kind") == "train"]
        speeds = [float(line["images_per_s"]) for line in lines if isinstance(line.get("images_per_s"), int | float)]
        batch = dict(self.config.get("train") or {}).get("batch_size")
        if not speeds or not isinstance(batch, int):
            return []
        speed = statistics.median(speeds)
        return _scores("training_images_per_s", {"": speed}) + _scores("training_step_s", {"": batch / speed})


def _scores(metric: str, values: dict[str, float]) -> list[Score]:
    return [Score(metric=metric, value=float(value), n=0, column=column) for column, value in values.items()]


def _run_config(context: AnalysisContext) -> dict[str, Any]:
    """The settings that the run was trained with; nothing for a model without a run."""
    if context.folder is None or not (context.folder / "config.yaml").is_file():
        return {}
    stored = read_yaml(context.folder / "config.yaml", alone=True)
    sections: dict[str, Any] = {name: stored[name] for name in ("objective", "sharpness", "train") if name in stored}
    return stored_settings(sections, {}, folder=context.folder)


def _generators(device: torch.device) -> list[int]:
    return [device.index or 0] if device.type == "cuda" else []
