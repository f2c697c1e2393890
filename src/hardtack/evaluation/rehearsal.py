"""The parts of an evaluation that are no attack, tried for a plan: its beginning, a piece, its audit's look, its end.

They are those of the job itself, on some of the user's images, in a temporary folder.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.base.instruments import Stopwatch
from hardtack.base.progress import Meter
from hardtack.data.spans import head
from hardtack.engine import PieceResult, Span
from hardtack.evaluation import detectors
from hardtack.evaluation.measure import Columns, Measure
from hardtack.evaluation.measure_views import ViewMeasure
from hardtack.evaluation.suite import SuiteJob
from hardtack.evaluation.summary import summarise
from hardtack.evaluation.views import View
from hardtack.results.fingerprint import fingerprint

PATIENCE_S = 15.0  # for the checks at the beginning, and for the detectors; they are counted where they take longer
PIECE_S, VIEWS_S = 2.0, 8.0  # for a piece without views, and with them
AGAIN_S = 0.5  # views of few images that take less are tried twice
FEW, FEWEST = 8, 16  # images; all views are tried where so many images of each take no longer


class PieceTime(NamedTuple):
    """Seconds of an image without attacks and views, and of a piece however many images it holds."""

    image_s: float = 0.0
    piece_s: float = 0.0

    def seconds(self, images: float, pieces: float = 1) -> float:
        return self.image_s * images + self.piece_s * pieces


@dataclass
class Rehearsed:
    """Seconds of an evaluation beside its attacks."""

    begin_s: float = 0.0
    piece: PieceTime = field(default_factory=PieceTime)
    views_s: float = 0.0  # of all views, for each image
    setup_s: float = 0.0  # once, of the first piece
    after_s: float = 0.0  # once, when all pieces are finished
    examine_s: float = 0.0  # of each image of an audit's sample, up to detectors.SAMPLE of them
    tried: int = 0  # images of the piece that was tried
    image_mb: float = 0.0  # memory that a piece needs for each image
    notes: list[str] = field(default_factory=list)


class Rehearsal:
    """`job` is made in a temporary folder; its measure, once `begin` was called, is that of the run."""

    def __init__(self, job: SuiteJob, watch: Stopwatch) -> None:
        self.job, self.watch, self.found = job, watch, Rehearsed()
        self.forward_s = 0.0  # of an image, about

    # ------------------------------------------------------------ the beginning

    def begin(self, made_s: float) -> None:
        """The checks before the first piece. `made_s`: what making the job has taken."""
        job, model = self.job, self.job.model
        began = self.watch.now()
        x, _ = head(job.data, job.runtime.torch_device)
        with preserve_state(model), torch.no_grad(), job.runtime.arithmetic("fp32"):
            model(x[:1])
            read_s = self.watch.since(began)
            self.forward_s = self.watch.time(lambda: model(x[:4])) / len(x[:4])
        passes, began = self._first_passes(), self.watch.now()
        if passes * self.forward_s <= PATIENCE_S:
            job.begin()
            self.found.begin_s = made_s + read_s + self.watch.since(began)
            return
        make = ViewMeasure if job.views else Measure
        what: Any = job.views if job.views else job.trials
        job.measure = make(model, what, job.config, job.runtime, like=x)
        job.random = isinstance(job.measure, Measure) and job.measure.verifier.votes > 1
        self.found.begin_s = made_s + read_s + passes * self.forward_s
        self.found.notes.append(f"the {passes} passes of the first checks were not tried but counted")

    def _first_passes(self) -> int:
        """Forward passes of one image in the first checks (sanity.py, consistency.py), about."""
        sample = min(32 if math.prod(self._shape()) <= 3 * 64 * 64 else 8, self.job.total)
        points = 2 * sample if self.job.trials else sample
        return 6 * points + 36 + min(self.job.config.batch_size or 128, self.job.total)

    def _shape(self) -> tuple[int, ...]:
        from hardtack.data.spans import shape_of

        return shape_of(self.job.data)

    # ------------------------------------------------------------ a piece

    def piece(self) -> Columns:
        """Images without attacks, or with all views. Returns columns as an evaluation of them would have."""
        job, views = self.job, list(self.job.views)
        rows = min(job.total, job.config.chunk_size or job.measure.chunk_size(job.total))
        measure: Measure | ViewMeasure = job.measure
        if isinstance(measure, Measure):
            bare = [dataclasses.replace(trial, stages=()) for trial in measure.trials]
            measure = Measure(job.model, bare, job.config, job.runtime, like=torch.zeros(1, *measure.shape))
            measure.consistency = job.measure.consistency
        else:
            measure.views = ()
        few = min(FEW, rows)
        few_s, _ = self._steady(measure, few)
        many = max(few, min(rows, int(PIECE_S / max(few_s / few, 1e-9))))
        before_mb = self.watch.instruments.peak_mb(self.watch.device)
        many_s, columns = self._steady(measure, many)
        grown_mb = self.watch.instruments.peak_mb(self.watch.device) - before_mb
        self.found.piece = _line(few, few_s, many, many_s)
        self.found.tried = many
        self.found.image_mb = max(0.0, grown_mb) / max(many - few, 1) if many < rows else 0.0
        if isinstance(measure, ViewMeasure):
            columns |= self._views(measure, views, few, rows)
            measure.views = views
        return columns

    def _steady(self, measure: Measure | ViewMeasure, count: int) -> tuple[float, Columns]:
        """The second time; what the first took beyond it is done once."""
        columns: Columns = {}

        def work() -> None:
            columns.update(self._measure(measure, count))

        first_s, again_s = self.watch.steady(work)
        self.found.setup_s += max(0.0, first_s - again_s)
        return min(first_s, again_s), columns

    def _measure(self, measure: Measure | ViewMeasure, count: int) -> Columns:
        """Read and measure the first images."""
        inputs = next(iter(self.job.inputs([Span(0, count)])))
        return measure(*inputs, wanted=0, notebook=None, meter=Meter("", total=count, quiet=True))[0]

    def _views(self, measure: ViewMeasure, views: Sequence[View], few: int, rows: int) -> Columns:
        """Every view, or one of each kind where all take too long: with few images, then with more."""
        kinds: dict[str, list[View]] = {}
        for view in views:
            kinds.setdefault(view.kind, []).append(view)
        middle = {kind: [own[len(own) // 2]] for kind, own in kinds.items()}
        measure.views = [middle[next(iter(kinds))][0].sample()[0]]
        self._steady(measure, few)  # what the first view sets up
        each_s, columns = self._try_views(measure, kinds, middle, few)
        cost_s = {kind: sum(each_s[kind]) / len(each_s[kind]) for kind in kinds}
        chosen = kinds if FEWEST * sum(cost_s[kind] * len(kinds[kind]) for kind in kinds) <= VIEWS_S else middle
        total_s = sum(cost_s[kind] * len(own) for kind, own in chosen.items())
        count = max(few, min(rows, int(VIEWS_S / max(total_s, 1e-9))))
        if count > 2 * few or chosen != middle:
            whole = total_s * count <= VIEWS_S  # else a sample of each, as before
            each_s, columns = self._try_views(measure, kinds, chosen, count, whole=whole)
        self.found.views_s = sum(sum(each_s[kind]) / len(each_s[kind]) * len(own) for kind, own in kinds.items())
        return columns

    def _try_views(
        self,
        measure: ViewMeasure,
        kinds: dict[str, list[View]],
        chosen: dict[str, list[View]],
        count: int,
        *,
        whole: bool = False,
    ) -> tuple[dict[str, list[float]], Columns]:
        """The seconds of an image under each chosen view, by kind, and columns for all views."""
        measure.views = ()
        bare_s, columns = self._steady(measure, count)
        each_s: dict[str, list[float]] = {}
        for kind, own in kinds.items():
            for view in chosen[kind]:
                sample, times = (view, 1.0) if whole else view.sample()
                measure.views = [sample]
                began = self.watch.now()
                found = self._measure(measure, count)
                seconds = self.watch.since(began)
                if not whole and seconds < AGAIN_S:  # the first view of a kind sets something up: overlays, tables
                    again_s = self.watch.time(lambda: self._measure(measure, count))
                    self.found.setup_s += max(0.0, seconds - again_s)
                    seconds = min(seconds, again_s)
                each_s.setdefault(kind, []).append(times * max(0.0, seconds - bare_s) / count)
                for other in own:
                    columns |= other.stand_in(sample, found) if other is not sample else _at(found)
        return each_s, columns

    # ------------------------------------------------------------ afterwards

    def examine(self, inputs: AttackInputs, threat: Any) -> None:
        """What the detectors of an audit take for an image."""
        size = min(detectors.SAMPLE, len(inputs.x), max(1, int(PATIENCE_S / max(300 * self.forward_s, 1e-9))))
        some = inputs.of(torch.arange(size, device=inputs.x.device))

        def look() -> None:
            with preserve_state(self.job.model):
                detectors.examine(
                    self.job.model, some.x, some.y, some.keys, threat=threat, runtime=self.job.runtime,
                    batch_size=self.job.measure.batch_size,
                )  # fmt: skip

        self.found.examine_s = self.watch.time(look) / size

    def end(self, columns: Columns) -> None:
        """The last checks, and the results of all images, as if they had the columns of the tried ones."""
        job, after_s = self.job, 0.0
        reference = job.measure.consistency.reference
        if job.measure.consistency.active and reference is not None:
            again = len(reference.points) + len(job.sample[0])
            after_s = again * self.forward_s
        all_columns = {name: np.resize(values, (job.total, *values.shape[1:])) for name, values in columns.items()}
        all_columns["index"] = np.arange(job.total)
        folder = Path(str(job.folder))
        identity = job.measure.complete(job.identity)

        def keep() -> None:
            job.store.write(Span(0, job.total), PieceResult(columns=all_columns))
            job.store.read()
            summarise(identity, all_columns, {}, [], folder, seconds=0.0)
            fingerprint(folder, identity.id)  # as the command does, to recall it when it is repeated

        self.found.after_s = after_s + self.watch.time(keep)


def _at(columns: Columns) -> Columns:
    """The columns of a view."""
    return {name: values for name, values in columns.items() if "@" in name}


def _line(few: int, few_s: float, many: int, many_s: float) -> PieceTime:
    """From pieces of two sizes."""
    if many <= few:
        return PieceTime(few_s / few)
    image_s = min(max(0.0, (many_s - few_s) / (many - few)), many_s / many)
    return PieceTime(image_s, max(0.0, many_s - many * image_s))
