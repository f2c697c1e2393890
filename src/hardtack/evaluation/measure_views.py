"""One piece of an evaluation that shows views: every view of the images, and what the model predicts for each.

Views whose columns follow from predictions are shown to a `Predictor` where there is a GPU, all others to the model in
fp32. The predictor's leads are kept beside the piece until all pieces are finished: if errors of its coarse copy turn
out to be larger than was known when a lead was accepted, the image is shown to the model again (`look_again`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.data.spans import chunks
from hardtack.engine import Notebook
from hardtack.evaluation.consistency import Consistency
from hardtack.evaluation.measure import Columns, whole_batches
from hardtack.evaluation.predictor import SAFETY, Answer, Predictor, make_predictor
from hardtack.evaluation.sanity import Flag, check_inputs, check_logits, look_first
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.threat_stages import default_batch
from hardtack.evaluation.views import Shown, View, ViewColumns, clean_columns

_BATCHES = 4  # in a piece on a GPU: what is done once for each piece then takes little of its time …
_PIECE_BYTES = 2**27  # … where so many images are this small: views need several times their memory
COARSE_ON = ("cuda",)  # devices; on a CPU fp32 is the fastest
_SAMPLE = 512  # images on which the rounding of a coarse copy is measured first …
_SAMPLE_ALONE = 2**14  # … where a lead that must be computed again costs all the passes of its image
_PASSES = {"cpu": 2**16, "cuda": 2**23}  # in a piece where images are shown alone: seconds of work


class ViewMeasure:
    """Measures piece after piece, as `Measure` does for attacks."""

    def __init__(
        self, model: nn.Module, views: Sequence[View], config: EvaluationConfig, runtime: Runtime, *, like: Tensor
    ) -> None:
        self.model, self.views, self.runtime = model, views, runtime
        self.batch_size = config.batch_size or default_batch(tuple(like.shape[1:]), runtime.torch_device.type)
        self.verifier = Verifier(model, runtime, batch_size=self.batch_size)
        self.consistency = Consistency(model, runtime, batch_size=self.batch_size, attacks=False)
        self.shape = tuple(like.shape[1:])
        self.precision = runtime.precision
        self.piece_flags: list[Flag] = []  # of the last piece
        self.piece_leads: Columns = {}  # of the last piece: for each view the least lead of every image, and `rounding`
        self.seconds: dict[str, float] = {}  # by kind of view, in this process
        self.may_predict = False  # whether a coarse copy may be used: set when the model's behaviour was checked
        self.predictor: Predictor | None = None
        self._tried = False

    def chunk_size(self, most: int) -> int:
        return view_piece_rows(self.shape, self.batch_size, self.runtime, most=most, views=self.views)

    def __call__(
        self, x: Tensor, y: Tensor, index: Tensor, *, wanted: int, notebook: Notebook | None, meter: Meter
    ) -> tuple[Columns, Columns, None]:
        """The columns of all views; no images are kept as evidence."""
        check_inputs(x, y, num_classes=getattr(self.model, "num_classes", None))
        x = x.clamp(0, 1)
        columns: dict[str, Tensor] = {"index": index, "label": y}
        with preserve_state(self.model), torch.no_grad():
            clean = self.verifier.logits(x)
            check_logits(clean, y)
            columns |= clean_columns(clean, y)
            columns |= self._show(x, y, index, meter)
            self.piece_flags = self.consistency.piece(x, index, clean)
        return _on_host(columns), {}, None

    def _show(self, x: Tensor, y: Tensor, index: Tensor, meter: Meter) -> ViewColumns:
        """The columns of all views, in the order of the views."""
        predictor, watch = self._predictor(x, y, index), _Stopwatch(self.runtime)
        columns: list[ViewColumns] = []
        predicted: dict[int, tuple[list[Answer], list[Tensor]]] = {}
        for number, view in enumerate(self.views):
            if predictor is not None and view.places:
                shown = self._noted(number, x, y, index, meter)
                pairs = [(predictor.predict(part.images, view.places, view.name), part.rows) for part in shown]
                predicted[number] = [answer for answer, _ in pairs], [rows for _, rows in pairs]
                columns.append({})
            elif view.alone:
                columns.append(view.columns_of(self.verifier, self._noted(number, x, y, index, meter), y))
            else:
                columns.append(view.columns(self.verifier, x, y, index))
            watch.mark(view.kind)
            meter.note(view.name, (number + 1) / len(self.views))
        if predictor is not None:
            predictor.finish()
        leads = {}
        for number, (answers, rows) in predicted.items():
            view = self.views[number]
            columns[number] = view.from_classes([answer.classes for answer in answers], rows, y=y)
            leads[view.name] = torch.full((len(x),), torch.inf, device=x.device)
            for answer, own in zip(answers, rows, strict=True):
                leads[view.name].scatter_reduce_(0, own, answer.lead, "amin")
        self.piece_leads = _on_host(leads)
        if predictor is not None:
            self.piece_leads["rounding"] = np.array(predictor.rounding)
        for kind, seconds in watch.seconds().items():
            self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
        return {name: value for part in columns for name, value in part.items()}

    def _noted(self, number: int, x: Tensor, y: Tensor, index: Tensor, meter: Meter) -> Iterator[Shown]:
        """What a view shows; the meter is told how much of it has been shown."""
        view, done = self.views[number], 0
        total = max(1, view.cost.forwards * len(x))
        for part in view.shown(self.verifier, x, y, index):
            yield part
            done += len(part.rows)
            meter.note(view.name, (number + done / total) / len(self.views))

    def _predictor(self, x: Tensor, y: Tensor, index: Tensor) -> Predictor | None:
        """The predictor, made on a sample of what the views show of the first piece."""
        ranked = [view for view in self.views if view.places]
        if self._tried or not self.may_predict or not ranked or self.runtime.torch_device.type not in COARSE_ON:
            return self.predictor
        self._tried, images = True, [x[:: max(1, len(x) // 8)]]
        wanted = _SAMPLE_ALONE if any(view.alone for view in ranked) else _SAMPLE
        few = max(8, wanted // len(ranked))  # images of each view, from up to four of its parts
        some = torch.arange(0, len(x), max(1, len(x) // few), device=x.device)[:few]
        for view in ranked:
            for part in itertools.islice(view.shown(self.verifier, x[some], y[some], index[some]), 4):
                images.append(part.images[:: max(1, 4 * len(part.images) // few)])
        self.predictor = make_predictor(self.verifier, torch.cat(images), max(view.places for view in ranked))
        return self.predictor

    def look_again(self, columns: Columns, pieces: Mapping[int, Columns], data: Any) -> Columns:
        """The columns of all images, after fp32 passes over those whose lead turned out to be too small.

        `pieces`: the leads of each piece by its first row.
        """
        least = SAFETY * max((float(leads["rounding"]) for leads in pieces.values()), default=0.0)
        doubtful = {view.name: np.zeros(len(columns["index"]), dtype=bool) for view in self.views if view.places}
        for start, leads in pieces.items():
            for name in doubtful.keys() & leads.keys():
                doubtful[name][start : start + len(leads[name])] |= leads[name] < least
        rows = torch.from_numpy(np.any(list(doubtful.values()), axis=0).nonzero()[0]) if doubtful else torch.empty(0)
        if not len(rows):
            return columns
        columns = {name: values.copy() for name, values in columns.items()}
        size = self.batch_size
        spans = [(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]
        for (start, stop), (x, y, index) in chunks(data, self.runtime.torch_device, spans, rows=rows):
            places = rows[start:stop].numpy()
            for view in (view for view in self.views if view.places):
                chosen = doubtful[view.name][places]
                if not chosen.any():
                    continue
                some = torch.from_numpy(chosen).to(x.device)
                with preserve_state(self.model), torch.no_grad():
                    exact = view.columns(self.verifier, x[some].clamp(0, 1), y[some], index[some])
                for name, values in _on_host(exact).items():
                    columns[name][places[chosen]] = values
        return columns

    def first_checks(self, x: Tensor, y: Tensor, *, classes: int | None) -> list[Flag]:
        return look_first(self.model, x, y, self.runtime, classes=classes, random_expected=False)[1]

    def note_search(self, precision: str, seconds: Mapping[str, float]) -> None:
        """What another process says about a piece that it measured."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def complete(self, identity: Any, *, seconds: Mapping[str, float] = MappingProxyType({})) -> Any:
        own = {name: round(value, 3) for name, value in self.seconds.items()}
        return dataclasses.replace(identity, seconds={**own, **seconds})


def view_piece_rows(
    shape: tuple[int, ...], batch_size: int, runtime: Runtime, *, most: int, views: Sequence[View] = ()
) -> int:
    """Images in a piece of a suite that shows views."""
    on_cpu = runtime.torch_device.type != "cuda"
    if views and all(view.alone for view in views):
        rows = max(1, _PASSES["cpu" if on_cpu else "cuda"] // sum(view.cost.forwards for view in views))
        return rows if on_cpu else max(1, min(rows, most))  # on a CPU whatever the number of workers
    batches = 1
    if not on_cpu:
        batches = max(1, min(_BATCHES, _PIECE_BYTES // (4 * batch_size * math.prod(shape))))
    return whole_batches(batches * batch_size, batch_size, runtime, most=most)


class _Stopwatch:
    """Seconds by kind of view. On a GPU the device notes the times, so that nothing waits for it in between."""

    def __init__(self, runtime: Runtime) -> None:
        self.device = runtime.torch_device
        self._marks: list[tuple[str, Any]] = []
        self.mark("")

    def mark(self, kind: str) -> None:
        """The work since the last mark was of this kind."""
        if self.device.type != "cuda":
            self._marks.append((kind, time.monotonic()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        self._marks.append((kind, event))

    def seconds(self) -> dict[str, float]:
        total: dict[str, float] = {}
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        for (_, before), (kind, after) in itertools.pairwise(self._marks):
            between = before.elapsed_time(after) / 1000 if self.device.type == "cuda" else after - before
            total[kind] = total.get(kind, 0.0) + between
        return total


def _on_host(columns: Mapping[str, Tensor]) -> Columns:
    return {name: value.cpu().numpy() for name, value in columns.items()}
