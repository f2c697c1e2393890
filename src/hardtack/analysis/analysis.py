"""The contract of an analysis: settings which give rows of work for a model, and a conclusion from all rows.

    @analyses.register("norms")
    @dataclass(frozen=True, kw_only=True)
    class Norms(OverImages):
        def begin(self, context: AnalysisContext) -> RowWork: ...

A row is an image, a point of a grid, or anything else that can be computed independently. The engine computes rows in
pieces and writes each piece to disk, so that a killed analysis can be resumed. A row must not depend on the piece that
contains it: its random numbers are drawn from its own index (`hardtack.base.randomness`) and `context.seed`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.analysis.image_cache import ImageCache
from hardtack.analysis.other_models import Other
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import chunks, count, shape_of
from hardtack.evaluation.threat_stages import default_batch
from hardtack.results import bootstrap, wilson

Arrays = dict[str, np.ndarray]
Data = Dataset | tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class AnalysisContext:
    """A model and the images it is analysed with.

    The model is in eval mode on the device. Its weights require no gradients and must not be changed (work on a copy,
    or inside `preserve_state`). Everything is computed in true fp32. `another(NAME)` loads a further model from a run
    folder or by its name. `folder` is the run folder that receives the analysis. `scratch` is a folder for the state of
    a long row; it is removed when the analysis is finished. Both are None if the analysis is not kept on disk.
    """

    model: nn.Module
    data: Data | None
    runtime: Runtime
    name: str = ""
    folder: Path | None = None
    scratch: Path | None = None

    @property
    def device(self) -> torch.device:
        return self.runtime.torch_device

    @property
    def seed(self) -> int:
        return self.runtime.seed

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(getattr(self.data, "classes", ()))

    @property
    def count(self) -> int:
        return 0 if self.data is None else count(self.data)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image, C×H×W."""
        return shape_of(self.data)

    def images(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """x (N×C×H×W in [0,1]), labels and indices of these images, on the device."""
        assert self.data is not None
        _, (x, y, index) = next(chunks(self.data, self.device, [(start, stop)]))
        return x.clamp(0, 1), y, index

    def cached_images(self, batch_size: int | None = None) -> ImageCache:
        """All images in batches that are read once and can be iterated over many times."""
        size = batch_size or default_batch(self.shape, self.device.type)
        spans = [(start, min(start + size, self.count)) for start in range(0, self.count, size)]
        read = ((x.clamp(0, 1), y, index) for _, (x, y, index) in chunks(self.data, self.device, spans))
        return ImageCache(read, self.device, 4 * self.count * math.prod(self.shape))

    def another(self, other: Any) -> nn.Module:
        """A further model for the same classes and images, frozen, on the device (see `Other`)."""
        model = Other.parse(other).load(self.model, self.shape).to(self.device).eval()
        return model.requires_grad_(False)


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of a conclusion. If it is a mean over images, `per_image` has the value of each image."""

    metric: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    interval: str = "bootstrap 95%"
    column: str = ""  # the layer or class, if the metric has several values
    threat: str | None = None
    per_image: np.ndarray | None = None


def mean_score(metric: str, per_image: np.ndarray, *, column: str = "", threat: str | None = None) -> Score:
    """The mean of one number per image, or the share of images for which a condition holds, with its interval.

    The mean of a single image has no interval.
    """
    vector = np.asarray(per_image, dtype=float)
    low: float | None
    high: float | None
    if np.asarray(per_image).dtype == bool:
        (low, high), kind = wilson(int(vector.sum()), len(vector)), "wilson 95%"
    else:
        (low, high), kind = bootstrap(vector) if len(vector) > 1 else (None, None), "bootstrap 95%"
    return Score(
        metric=metric, value=float(vector.mean()), n=len(vector), low=low, high=high, interval=kind, column=column,
        threat=threat, per_image=vector,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The outcome of all rows. `arrays` are added to those of the rows (or replace them); `facts` are plain values."""

    scores: Sequence[Score] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    notes: Sequence[str] = ()


class RowWork(Protocol):
    """The work of an analysis: `length` rows, of which `at_once` are computed together."""

    @property
    def length(self) -> int: ...
    @property
    def at_once(self) -> int: ...

    def rows(self, start: int, stop: int) -> Arrays:
        """Arrays whose first axis runs over the rows start … stop−1."""
        ...

    def conclude(self, arrays: Arrays) -> Conclusion:
        """The conclusion from the concatenated arrays of all rows."""
        ...


class Analysis:
    """The base class of analyses: a frozen dataclass of settings, registered in `analyses`. Only `begin` is needed."""

    takes_images: ClassVar[bool] = False  # whether data is needed; `OverImages` sets it
    later_settings: ClassVar[tuple[str, ...]] = ()  # settings that are not in the id while they are empty, as once

    @property
    def asks_model(self) -> bool:
        """Whether the model is run on images. If so, its logits on the first images are checked before the analysis."""
        return self.takes_images

    def fingerprints(self) -> tuple[str, ...]:
        """Digests of further files that the analysis reads (weights of other models); they are part of its id."""
        return ()

    def begin(self, context: AnalysisContext) -> RowWork:
        """Prepare the rows for this model and these images. Raise a UserError here if the analysis is not possible."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class OverImages(Analysis):
    """The settings of every analysis over images.

    n            the number of images, from the first one on
    batch_size   images in one pass of the model; null: what suits the device
    """

    takes_images: ClassVar[bool] = True
    n: Annotated[int, Field(ge=1)] = 100
    batch_size: Annotated[int, Field(ge=1)] | None = None


def choose_images(context: AnalysisContext, analysis: Analysis) -> AnalysisContext:
    """The context with only those images that the analysis uses."""
    if not isinstance(analysis, OverImages):
        return dataclasses.replace(context, data=None)
    if context.data is None or context.count == 0:
        raise UserError("this analysis needs images: give data=NAME on the command line, or images in Python")
    n = min(analysis.n, context.count)
    first = (context.data[0][:n], context.data[1][:n]) if isinstance(context.data, tuple) else context.data.first(n)
    return dataclasses.replace(context, data=first)
