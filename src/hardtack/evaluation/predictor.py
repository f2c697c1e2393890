"""Predictions in coarse arithmetic, and in fp32 wherever rounding could change them.

A prediction, or the order of the likeliest classes, is decided by differences of logits. A coarse copy of the model
(`coarse_copies`: half precision or TF32, as CUDA graphs) gives them faster, and wrong by its rounding:
by how much is measured against the model in fp32. Where every lead of one class over the next is larger than a
multiple of the largest error that was ever measured, the order is that of fp32; all other images are gathered from
many batches and computed again in fp32, in full batches. Some images with large leads are computed again as well, at
regular intervals, so that the errors are measured everywhere and not only where the leads are small.

Nothing waits for the device between the batches of a piece: which rows are to be computed again is copied to the host
while later batches are computed, and the images are kept until it is known.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.pool.fast_copy import fast_copy
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.capture import Captured
from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.evaluation.views import likeliest, not_finite

SAFETY = 2.0  # no accepted lead may be smaller than this multiple of the largest error measured, at the end
_HEADROOM = 3.0  # of the bound while measuring: errors that grow to half of it do not reopen what was accepted
_WORTH = 0.1  # of fp32's time: what the next finer copy must be able to save before it is tried
_EVERY = 128  # one image of so many is computed again although its lead is large
_STRIDE = 37  # has no divisor in common with it
_WIDER = 4  # batches of fp32 that fit into one coarse batch
_KEPT = 2  # batches whose images are kept while their leads travel to the host

Logits = Callable[[Tensor], Tensor]


class CoarseCopy(NamedTuple):
    """A model in coarser arithmetic, and its share of fp32's time: a rough one, which only chooses between copies."""

    name: str
    logits: Logits
    share: float


def coarse_copies(model: nn.Module, runtime: Runtime, probe: Tensor) -> Iterator[CoarseCopy]:
    """Copies in the arithmetic that a GPU is fast in, the fastest first.

    fp16 rounds eight times finer than bf16, at the same speed, but its range is small: bf16 is for models that exceed
    it. TF32 rounds as fp16 does, in every product of matrices, but keeps what is between them in fp32.
    """
    kinds: list[tuple[str, torch.dtype | None, SearchPrecision, float]] = [
        ("fp16", torch.float16, "fp32", 0.1), ("bf16", torch.bfloat16, "fp32", 0.1), ("tf32", None, "tf32", 0.3),
    ]  # fmt: skip
    for name, dtype, arithmetic, share in kinds:
        twin = fast_copy(model, runtime, dtype, probe)
        if twin is not None:
            yield CoarseCopy(name, functools.partial(_call, twin, runtime, arithmetic), share)


def _call(model: nn.Module, runtime: Runtime, arithmetic: SearchPrecision, x: Tensor) -> Tensor:
    with runtime.arithmetic(arithmetic):
        return model(x).float()


class Ranking(NamedTuple):
    """Coarse logits, the order of the likeliest classes, and the least lead of one of them over the next."""

    logits: Tensor  # M×classes
    classes: Tensor  # M×places
    lead: Tensor  # M; −inf where a logit is not finite, since such a lead says nothing


def ranking(logits: Tensor, places: int) -> Ranking:
    """From coarse logits; classes with equal logits have no lead, whichever comes first here."""
    top = logits.topk(min(places + 1, logits.shape[1]), dim=1)
    lead = (top.values[:, :-1] - top.values[:, 1:]).amin(dim=1)
    lead = torch.where(logits.isfinite().all(dim=1), lead, -torch.inf)
    return Ranking(logits, top.indices[:, :places], lead)


def rounding_error(coarse: Tensor, exact: Tensor) -> Tensor:
    """By how much a lead between any two classes may be wrong, M; 0 where a logit is not finite."""
    error = coarse - exact
    return (error.amax(dim=1) - error.amin(dim=1)).nan_to_num(0.0, 0.0, 0.0)


@dataclass(eq=False)
class Answer:
    """What is predicted for a batch of images; final when the predictor has finished.

    classes   M×places, the likeliest classes in their order
    lead      M, the least lead between them; +inf where they were computed in fp32
    """

    name: str
    classes: Tensor
    lead: Tensor


@dataclass
class Counts:
    """Images whose predictions were asked for, images computed again in fp32, and passes that this took."""

    images: int = 0
    exact: int = 0
    batches: int = 0


class _Kept(NamedTuple):
    """A batch until it is known which of its rows are to be computed again."""

    answer: Answer
    images: Tensor
    logits: Tensor
    open: Tensor  # on the host
    arrived: torch.cuda.Event | None


class _Open(NamedTuple):
    """Rows of a batch that wait for fp32."""

    answer: Answer
    rows: Tensor
    images: Tensor
    logits: Tensor  # coarse


class Predictor:
    """The likeliest classes of images, equal to those of the model in fp32. See the beginning of this file.

    `rounding` is the largest error of a lead that was measured so far.
    """

    def __init__(self, exact: Verifier, coarse: CoarseCopy, rounding: float) -> None:
        self.exact, self.coarse, self.rounding = exact, coarse, rounding
        self.bound = _HEADROOM * rounding
        self.counts = Counts()
        self.width = _WIDER * exact.batch_size
        self._device = exact.runtime.torch_device
        self._graphs: dict[tuple[int, int], Callable[[Tensor], Ranking]] = {}
        self._kept: deque[_Kept] = deque()
        self._open: list[_Open] = []
        self._largest: list[Tensor] = []  # errors measured since the last fetch, on the device
        self._finite: list[tuple[str, Tensor]] = []
        self._shown = 0

    # ------------------------------------------------------------ coarse

    def predict(self, images: Tensor, places: int, name: str) -> Answer:
        """The answer for images N×3×H×W that are shown under `name`; they must not be changed afterwards."""
        parts = self._ranked(images, places)
        classes, lead = torch.cat([part.classes for part in parts]), torch.cat([part.lead for part in parts])
        answer = Answer(name, classes, lead)
        self.counts.images += len(images)
        self._shown += 1
        numbers = torch.arange(len(images), device=images.device) + _STRIDE * self._shown  # other rows in every batch
        unsure = ~(lead > self.bound) | (numbers % _EVERY == 0)
        self._kept.append(_Kept(answer, images, torch.cat([part.logits for part in parts]), *_to_host(unsure)))
        while len(self._kept) > _KEPT:
            self._gather(self._kept.popleft())
        return answer

    @torch.no_grad()
    def _ranked(self, images: Tensor, places: int) -> list[Ranking]:
        try:
            return [self._rank(part, places) for part in images.split(self.width)]
        except torch.OutOfMemoryError:
            if self.width == 1:
                raise
            self.width //= 2
            self._graphs.clear()  # graphs keep the memory of their largest batch
            torch.cuda.empty_cache()
            return self._ranked(images, places)

    def _rank(self, x: Tensor, places: int) -> Ranking:
        if not self.exact.runtime.captures:
            return ranking(self.coarse.logits(x), places)
        size = self.width  # few sizes, since each has its own graph
        while size // 2 >= max(len(x), self.width // 16, 1):
            size //= 2
        padded = torch.cat([x, x[:1].expand(size - len(x), *x.shape[1:])]) if size > len(x) else x
        graph = self._graphs.setdefault(
            (size, places), Captured(lambda image: ranking(self.coarse.logits(image), places))
        )  # fmt: skip
        return Ranking(*(value[: len(x)].clone() for value in graph(padded)))

    # ------------------------------------------------------------ fp32

    def _gather(self, kept: _Kept) -> None:
        """Put the rows of a batch that are not decided into the queue for fp32."""
        if kept.arrived is not None:
            kept.arrived.synchronize()  # of a batch that was computed some batches ago
        rows = kept.open.nonzero()[:, 0]
        if len(rows):
            rows = rows.to(kept.images.device, non_blocking=True)
            self._open.append(_Open(kept.answer, rows, kept.images[rows], kept.logits[rows]))
        while sum(len(part.rows) for part in self._open) >= self.exact.batch_size:
            self._compute(self._take(self.exact.batch_size))

    def _take(self, most: int) -> list[_Open]:
        """The first rows of the queue, at most so many."""
        taken: list[_Open] = []
        while self._open and most > 0:
            part = self._open.pop(0)
            if len(part.rows) > most:
                self._open.insert(0, _Open(part.answer, *(value[most:] for value in part[1:])))
                part = _Open(part.answer, *(value[:most] for value in part[1:]))
            taken.append(part)
            most -= len(part.rows)
        return taken

    def _compute(self, parts: list[_Open]) -> None:
        """Replace rows of answers by what the model predicts in fp32, and measure how far the coarse copy was off."""
        images = torch.cat([part.images for part in parts])
        count, size = len(images), self.exact.batch_size
        if self._device.type == "cuda" and count < size:  # the same kernels as for whole batches, thus the same bits
            images = torch.cat([images, images[:1].expand(size - count, *images.shape[1:])])
        logits = self.exact.logits(images)[:count]
        self.counts.exact += count
        self.counts.batches += 1
        self._largest.append(rounding_error(torch.cat([part.logits for part in parts]), logits).amax())
        for part, own in zip(parts, logits.split([len(part.rows) for part in parts]), strict=True):
            part.answer.classes[part.rows] = likeliest(own, part.answer.classes.shape[1])
            part.answer.lead[part.rows] = torch.inf
            self._finite.append((part.answer.name, own.isfinite().all()))

    def finish(self) -> None:
        """Compute everything that waits for fp32: all answers are final. Refuses logits that are not finite."""
        while self._kept:
            self._gather(self._kept.popleft())
        while self._open:
            self._compute(self._take(self.exact.batch_size))
        if not self._largest:
            return
        largest = float(torch.stack(self._largest).amax())
        finite = torch.stack([finite for _, finite in self._finite]).tolist()
        names = [name for name, _ in self._finite]
        self._largest, self._finite = [], []
        for name, is_finite in zip(names, finite, strict=True):
            if not is_finite:
                raise not_finite(name)
        self.rounding = max(self.rounding, largest)
        if self.bound < SAFETY * self.rounding:
            self.bound = _HEADROOM * self.rounding


def _to_host(mask: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """A copy on the host, and the event after which it is complete."""
    if mask.device.type != "cuda":
        return mask, None
    host = torch.empty(mask.shape, dtype=mask.dtype, pin_memory=True)
    host.copy_(mask, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(mask.device))
    return host, arrived


@torch.no_grad()
def make_predictor(exact: Verifier, images: Tensor, places: int) -> Predictor | None:
    """A predictor whose rounding was measured on these images; None where no copy is expected to save time."""
    wanted = exact.logits(images)
    if not wanted.isfinite().all():
        return None
    best, least = None, 1.0  # in units of fp32's time
    for coarse in coarse_copies(exact.model, exact.runtime, images[:8]):
        if least < coarse.share + _WORTH:
            break
        ranked = ranking(torch.cat([coarse.logits(part) for part in images.split(exact.batch_size)]), places)
        rounding = float(rounding_error(ranked.logits, wanted).amax())
        again = 1 - float((ranked.lead > _HEADROOM * rounding).float().mean())
        if coarse.share + again < least:
            best, least = Predictor(exact, coarse, rounding), coarse.share + again
    return best
