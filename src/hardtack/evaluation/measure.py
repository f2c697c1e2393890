"""One chunk of an evaluation: clean predictions, the trials on the images still standing, their verification."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks import Outcome, call, untouched
from hardtack.attacks.outcome import nothing_yet
from hardtack.evaluation.sanity import Flag, check_behaviour, check_inputs, check_logits, few_classes, other_classes
from hardtack.runtime import Runtime

Columns = dict[str, np.ndarray]


class Measure:
    """One chunk: clean predictions, the trials, and their verification."""

    def __init__(self, model: nn.Module, trials: list[Any], suite: str, runtime: Runtime) -> None:
        self.model, self.trials, self.suite, self.runtime = model, trials, suite, runtime

    def __call__(self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int) -> tuple[Columns, Columns]:
        """Verdicts of the chunk, and the first `wanted` images with what became of them."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        x = x.clamp(0, 1)
        with untouched(self.model):
            clean = self._logits(x)
            check_logits(clean, y)
            verdict = self._attack(x, y, index, clean.argmax(dim=1))
        columns = {name: value.cpu().numpy() for name, value in verdict.items() if value.ndim == 1}
        columns["broken_by"] = np.array([self._name(step) for step in columns["broken_by"]], dtype=object)
        shown = slice(0, min(wanted, len(x)))
        pictures = {"x": x, "x_adv": verdict["x_adv"], **{k: v for k, v in verdict.items() if k in _SHOWN}}
        return columns, {k: _picture(v[shown]) for k, v in pictures.items()} if shown.stop else {}

    def _attack(self, x: Tensor, y: Tensor, index: Tensor, prediction: Tensor) -> dict[str, Tensor]:
        correct = prediction == y
        standing, x_adv, adversarial = correct.clone(), x.clone(), prediction.clone()
        nothing = torch.full_like(y, -1)
        broken_by, broken_at = nothing.clone(), nothing.clone()
        size = torch.full((len(x),), torch.nan, device=x.device)
        attacked, zero, flat, unverified, not_finite = (torch.zeros_like(correct) for _ in range(5))
        verdict: dict[str, Tensor] = {}
        for number, attack in enumerate(self.trials):
            rows = standing.nonzero()[:, 0]
            if len(rows) and attack.threat.eps > 0:
                with self.runtime.arithmetic():
                    found = _search(attack, self.model, x[rows], y[rows], index[rows])
                logits = self._logits(found.x_adv)
                finite, predicted = logits.isfinite().all(dim=1), logits.argmax(dim=1)
                wrong = finite & (predicted != y[rows]) & attack.threat.contains(found.x_adv, x[rows])
                not_finite[rows] |= found.not_finite | ~finite
                attacked[rows] = True
                unverified[rows] |= found.fooled & ~wrong
                zero[rows] = found.zero_gradient
                flat[rows] = found.first_loss.isfinite() & (found.best_loss <= found.first_loss)
                x_adv[rows], adversarial[rows] = found.x_adv, predicted
                size[rows] = attack.threat.size(found.x_adv - x[rows])
                fallen = rows[wrong]
                standing[fallen] = False
                broken_by[fallen], broken_at[fallen] = number, found.broken_at[wrong]
            verdict[f"robust@{attack.threat}"] = standing.clone()
        return verdict | {
            "index": index, "label": y, "clean_prediction": prediction, "clean_correct": correct,
            "robust": standing, "broken_by": broken_by, "broken_at_step": broken_at, "size": size,
            "adversarial_prediction": adversarial, "attacked": attacked, "zero_gradient": zero,
            "flat_loss": flat, "unverified": unverified, "not_finite": not_finite, "x_adv": x_adv,
        }  # fmt: skip

    @torch.no_grad()
    def _logits(self, x: Tensor) -> Tensor:
        with self.runtime.arithmetic("fp32"):
            return self.model(x).float()

    def first_checks(self, x: Tensor, y: Tensor, *, classes: int | None) -> list[Flag]:
        """Refusals and flags from the first few images; `classes` is how many the data has, where it says."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        with untouched(self.model), self.runtime.arithmetic("fp32"):
            clean = self._logits(x)
            check_logits(clean, y)
            flags = check_behaviour(self.model, x, clean) + other_classes(classes, clean.shape[1])
        losses = {getattr(attack, "loss", None) for attack in self.trials}
        return flags + [flag for loss in losses for flag in few_classes(clean.shape[1], loss or "ce")]

    def _name(self, number: int) -> str | None:
        return None if number < 0 else f"{self.suite} {self.trials[number].threat}"


def _search(attack: Any, model: nn.Module, x: Tensor, y: Tensor, keys: Tensor) -> Outcome:
    """What the attack found. One of the user's own is a function of (model, x, y) and says nothing but its images."""
    if hasattr(attack, "search"):
        return attack.search(model, x, y, keys=keys, verdict=True)
    return nothing_yet(x)._replace(x_adv=call(attack, model, x, y, keys=keys).detach())


_SHOWN = ("index", "label", "clean_prediction", "adversarial_prediction", "size")


def _picture(value: Tensor) -> np.ndarray:
    return (value.permute(0, 2, 3, 1) if value.ndim == 4 else value).cpu().numpy()
