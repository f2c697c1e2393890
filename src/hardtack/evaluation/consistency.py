"""Does the model answer the same under all conditions of an evaluation?

A verdict compares answers that were given under different conditions: the clean prediction, the search (with gradients,
in large batches, perhaps on a copy of the model) and the verification (without gradients, in small batches, later). A
model that answers otherwise in one of them is attacked as one function and judged as another, and its accuracy under
attack means nothing. Three checks compare the logits of the same images:

    before   a random sample of the whole data set, clean and at random points of the ball, before the first piece
    piece    a sample of every piece, when its attacks have ended, with the logits that decided its verdicts
    after    the first sample again when all pieces are finished, and the stored predictions of a sample of all images

Together they cost a few hundred forward passes of one image and about one pass for every sixteenth image of a piece.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.input_guard import CHANGES_INPUT, is_changed
from hardtack.base.randomness import make_keys, permutation, uniform
from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.evaluation.sanity import Flag, flag

TOLERANCE = 1e-3  # of the largest logit; honest models differ by 1e-5 between batch sizes
_OTHER_PRECISION = 0.5  # of the spread of the logits, on average over the images
_ALONE, _FEW = 4, 8  # images that are shown alone, and in one small batch
_PIECE_SHARE = 16  # one image of so many is checked when a piece is finished
_STREAM = 0x636F6E73  # keeps the sample apart from the random numbers of attacks

_MESSAGES = {
    "random_outputs": "two passes over the same images give different logits ({}); the result is a single random draw; "
    "suite=autoattack version=rand averages the accuracy under attack over several draws",
    "batch_dependent": "the logits of an image depend on the other images of its batch or on the batch size ({}); "
    "attacks and verification use different batches: remove statistics over the batch",
    "grad_dependent": "the logits change when gradients are enabled ({}): attacks search on another function than the "
    "one that is measured; remove what depends on torch.is_grad_enabled() or x.requires_grad",
    "copy_dependent": "a deep copy of the model gives other logits ({}): attacks may run on a copy; keep everything "
    "that decides the answer in parameters, buffers or plain attributes",
    "dtype_dependent": "in {precision} the model gives other logits than in fp32 ({}): the search runs in {precision}; "
    "use runtime.precision=fp32",
    "changes_input": CHANGES_INPUT + " (under some conditions only: other passes got no copies)",
    "call_dependent": "the logits of the same images changed during the evaluation ({}): they depend on the number of "
    "calls, on earlier inputs or on the time; make the model a function of its input alone",
}


class Reference(NamedTuple):
    """Points that were shown to the model before the evaluation, and its logits."""

    points: Tensor
    logits: Tensor


class Consistency:
    """The checks of one evaluation. `precision`: of the search; `attacks`: whether images are attacked at all."""

    def __init__(
        self,
        model: nn.Module,
        runtime: Runtime,
        *,
        batch_size: int,
        precision: SearchPrecision = "fp32",
        attacks: bool = True,
        random_expected: bool = False,
    ) -> None:
        self.model, self.runtime, self.batch_size, self.precision = model, runtime, max(1, batch_size), precision
        self.attacks, self.active = attacks, not random_expected
        self.reference: Reference | None = None
        self._changed = False  # whether the model has changed one of the copies that it was given

    def sample(self, total: int, pixels: int) -> Tensor:
        """Positions of the images for `before` and `after`: random, but the same at every call; fewer where images
        are large and there is no GPU."""
        fast = self.runtime.torch_device.type == "cuda" or pixels <= 3 * 64 * 64
        return permutation(total, self.runtime.seed, _STREAM)[: 32 if fast else 8].sort().values

    # ------------------------------------------------------------ the three checks

    def before(self, x: Tensor, *, radius: float = 0.0, total: int | None = None) -> list[Flag]:
        """Flags from a sample of the images, clean and, with a `radius`, at random points within it (per pixel).

        `total`: the number of images of the evaluation, beyond which no batch is filled.
        """
        if not self.active:
            return []
        points = x.clamp(0, 1)
        if radius > 0:
            noise = uniform(make_keys(torch.arange(len(x), device=x.device), _STREAM), tuple(x.shape[1:])) < 0.5
            points = torch.cat([points, (points + radius * (1 - 2 * noise.float())).clamp(0, 1)])
        with preserve_state(self.model):
            logits = self._logits(points)
            flags = self.compare(points, logits, most=total)
        self.reference = Reference(points, logits)
        return flags

    def piece(
        self, x: Tensor, index: Tensor, clean: Tensor, *, attacked: tuple[Tensor, Tensor] | None = None
    ) -> list[Flag]:
        """Flags from a sample of a finished piece, whose images have the numbers `index`.

        `clean` are the logits that were measured, `attacked` the attacked images and the predictions that were stored
        for them. The caller has put the model into `preserve_state`.
        """
        if not self.active:
            return []
        count = max(1, min(len(x) // _PIECE_SHARE, 16))
        rows = permutation(len(x), int(index[0]), _STREAM)[:count].to(x.device)
        points = x[rows]
        now = self._logits(points)
        wrong = _differ(now, clean[rows], scale=_scale(clean))
        if attacked is not None:
            x_adv, predicted = attacked[0][rows], attacked[1][rows]
            wrong += int(_predicts_otherwise(self._logits(x_adv), predicted).sum())
            wrong += _differ(self._logits(points, gradients=True), now)
            points = torch.cat([points, x_adv])
        if not wrong:
            return []
        return self.compare(points, self._logits(points)) or [self._flag("call_dependent", wrong, len(points))]

    def after(self, x: Tensor, y: Tensor, columns: Mapping[str, np.ndarray]) -> list[Flag]:
        """Flags at the end. `columns` are those of the images x (`clean_prediction`, `clean_confidence`)."""
        if not self.active or self.reference is None:
            return []
        points, logits = self.reference
        with preserve_state(self.model):
            changed = _differ(self._logits(points), logits)
            if changed:
                return [self._flag("call_dependent", changed, len(points))]
            now = self._logits(x.clamp(0, 1))
            wrong = other_predictions(now, y, columns)
            if not wrong:
                return []
            return self.compare(x.clamp(0, 1), now) or [self._flag("call_dependent", wrong, len(x))]

    # ------------------------------------------------------------ one set of points under all conditions

    def compare(self, points: Tensor, first: Tensor, *, most: int | None = None) -> list[Flag]:
        """Flags for every condition under which the logits of `points` are not `first`."""
        again = self._logits(points)
        parts = {"batch_dependent": self._in_other_batches(points, first, most)}
        if self.attacks:
            parts["grad_dependent"] = _differ(self._logits(points, gradients=True), first)
            parts["copy_dependent"] = self._on_a_copy(points, first)
        parts["dtype_dependent"] = self._in_other_precision(points, first)
        parts["changes_input"] = len(points) if self._changed else 0
        last, total = self._logits(points), len(points)
        if changed := _differ(again, first):
            settled = not _differ(last, again)
            return [self._flag("call_dependent" if settled else "random_outputs", changed, total)]
        if changed := _differ(last, first):
            return [self._flag("call_dependent", changed, total)]
        return [self._flag(code, wrong, total) for code, wrong in parts.items() if wrong]

    def _in_other_batches(self, points: Tensor, first: Tensor, most: int | None) -> int:
        """How many points have other logits alone, in a small batch, in another order, or in a full batch."""
        few = torch.arange(len(points), device=points.device).flip(0)[:_FEW]
        wrong = _differ(self._logits(points[few]), first[few])
        for row in few[:_ALONE].tolist():
            wrong += _differ(self._logits(points[row : row + 1]), first[row : row + 1], scale=_scale(first))
        size = min(self.batch_size, most or self.batch_size)
        if size > len(points):
            fill = points[torch.arange(size, device=points.device) % len(points)].flip(0)
            full = torch.cat([fill[: size - len(points)].flip(-1), points])
            wrong += _differ(self._logits(full)[-len(points) :], first)
        return min(wrong, len(points))

    def _on_a_copy(self, points: Tensor, first: Tensor) -> int:
        try:
            twin = copy.deepcopy(self.model)
        except Exception:  # attacks do not use a copy either
            return 0
        twin.train()
        twin.eval()
        return _differ(self._logits(points, model=twin), first)

    def _in_other_precision(self, points: Tensor, first: Tensor) -> int:
        """How many points have logits that no rounding explains."""
        if self.precision == "fp32":
            return 0
        difference = (self._logits(points, precision=self.precision) - first).abs().mean(dim=1)
        return int((difference > _OTHER_PRECISION * first.std(dim=1).mean().clamp_min(1e-6)).sum())

    def _logits(
        self, x: Tensor, *, gradients: bool = False, model: nn.Module | None = None, precision: SearchPrecision = "fp32"
    ) -> Tensor:
        """Logits as fp32, in batches of at most `batch_size`, which is halved where memory does not suffice."""
        try:
            parts = [self._forward(part, gradients, model, precision) for part in x.split(self.batch_size)]
        except torch.OutOfMemoryError:
            if self.batch_size == 1:
                raise
            self.batch_size //= 2
            torch.cuda.empty_cache()
            return self._logits(x, gradients=gradients, model=model, precision=precision)
        return torch.cat(parts)

    def _forward(self, x: Tensor, gradients: bool, model: nn.Module | None, precision: SearchPrecision) -> Tensor:
        """The model gets a copy of the images, in case that it changes them."""
        with self.runtime.arithmetic(precision), torch.set_grad_enabled(gradients):
            given = x.detach().clone()
            given = given.requires_grad_().clone() if gradients else given
            out = (model or self.model)(given)
        self._changed |= is_changed(x, given.detach())
        return out.detach().float()

    def _flag(self, code: str, wrong: int, total: int) -> Flag:
        message = _MESSAGES[code].format(f"on {wrong} of {total} points", precision=self.precision)
        return flag("red", code, message)


def merge_flags(flags: list[Flag], more: list[Flag]) -> list[Flag]:
    """All flags, of `more` only those with a code that does not occur before."""
    merged = list(flags)
    for item in more:
        if item["code"] not in {known["code"] for known in merged}:
            merged.append(item)
    return merged


def _scale(logits: Tensor) -> float:
    return float(logits.nan_to_num(0, 0, 0).abs().amax().clamp_min(1e-12)) if logits.numel() else 1.0


def _differ(a: Tensor, b: Tensor, *, scale: float | None = None) -> int:
    """How many rows of logits differ by more than the tolerance."""
    if a.shape != b.shape:
        return len(b)
    if not len(a):
        return 0
    difference = (a.nan_to_num(0, 1e30, -1e30) - b.nan_to_num(0, 1e30, -1e30)).abs().amax(dim=1)
    return int((difference > TOLERANCE * (scale or _scale(b))).sum())


def _predicts_otherwise(logits: Tensor, predicted: Tensor) -> Tensor:
    """Which rows have another prediction than `predicted`, by more than the tolerance."""
    top = logits.nan_to_num(-torch.inf).topk(2, dim=1)
    sure = top.values[:, 0] - top.values[:, 1] > TOLERANCE * _scale(logits)
    return (top.indices[:, 0] != predicted) & sure


def other_predictions(logits: Tensor, y: Tensor, columns: Mapping[str, np.ndarray]) -> int:
    """How many images have another prediction or confidence than the stored one."""
    other = _predicts_otherwise(logits, torch.as_tensor(columns["clean_prediction"], device=y.device).long())
    confidence = torch.as_tensor(columns["clean_confidence"], device=y.device).float()
    now = logits.softmax(dim=1).gather(1, y[:, None])[:, 0]
    return int((other | ((now - confidence).abs() > TOLERANCE * max(1.0, _scale(logits)))).sum())
