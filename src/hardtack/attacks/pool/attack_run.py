"""A list of attacks against a list of images: each stage attacks the images that remain correctly classified.

Pooled attacks run in the pool; the others are called batch by batch. Whatever an attack reports, an image is broken
when the verifier confirms it. What happened is written into the verdict table; a run can be continued from any moment
at which the table and the record of the current stage were written to disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.pool import Pool, PoolProgress
from hardtack.attacks.pool.search import success_margin
from hardtack.attacks.pool.verdicts import VerdictTable
from hardtack.attacks.pool.verifier import Verifier
from hardtack.threats import Threat


@dataclass(frozen=True)
class RunProgress:
    """How far an attack run has come, for whoever shows it or writes it to disk."""

    name: str  # of the current stage
    stage: int  # its number; all stages are finished when it is their number
    remaining: int  # images that are correctly classified under the attacks so far
    share: float  # of the work of all stages that is done, as far as can be told
    record: AttemptRecord | None = None  # of the current stage, where it runs in the pool


Tell = Callable[[RunProgress], None]


class Pools:
    """The pool of each stage: the given one, or one with less rounding, made when it is first needed."""

    def __init__(self, model: nn.Module, pool: Pool, like: Tensor) -> None:
        self.model, self.pool, self.like = model, pool, like
        self._made: dict[str, Pool] = {}

    def of(self, stage: Stage) -> Pool:
        """`like` are a few images, on which a copy of the model must have its logits and gradient."""
        if stage.attack.has_gradient_source:
            return self._made.get("itself") or self._keep("itself", self.pool.exact(self.model))
        if stage.exact:
            return self._made.get("exact") or self._keep("exact", self.pool.finer(self.model, self.like, "fp32"))
        if stage.fine and stage.attack.pooled:
            return self._made.get("finer") or self._keep("finer", self.pool.finer(self.model, self.like))
        return self.pool

    def _keep(self, name: str, pool: Pool) -> Pool:
        self._made[name] = pool
        return pool


def repeats(stages: Sequence[Stage], number: int, pool: Pool) -> bool:
    """Whether a stage would repeat an earlier one, because everything is searched in fp32 anyway; it is left out."""
    stage = stages[number]
    twin = dataclasses.replace(stage, exact=False)
    return pool.coarse == "fp32" and (stage.fine or (stage.exact and twin in stages[:number]))


class AttackRun:
    """The stages of one trial. `first` is the stage to begin with; `kept` is its record, as read from disk."""

    def __init__(
        self,
        table: VerdictTable,
        stages: list[Stage],
        *,
        trial: int = 0,
        first: int = 0,
        kept: dict[str, np.ndarray] | None = None,
    ) -> None:
        self.table, self.stages, self.trial, self.first, self.kept = table, stages, trial, first, kept
        self.seconds: dict[str, float] = {}  # by stage

    def run(self, model: nn.Module, pool: Pool, verifier: Verifier, tell: Tell | None = None) -> None:
        """Run the remaining stages. `model` is the real one; the pool has its own copy."""
        pools = Pools(model, pool, self.table.inputs.x[:8])
        for number in range(self.first, len(self.stages)):
            stage, began = self.stages[number], time.monotonic()
            rows = self._rows(stage)
            if repeats(self.stages, number, pool):
                rows = rows[:0]
            if len(rows) and stage.attack.threat.eps > 0:
                if stage.attack.pooled:
                    self._run_pooled(number, rows, pools.of(stage), verifier, tell)
                else:
                    self._run_batches(number, rows, model, pools.of(stage), verifier)
            self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + time.monotonic() - began
            self.kept = None
            if tell is not None:
                tell(self._progress(number + 1, 0.0))

    def _rows(self, stage: Stage) -> Tensor:
        rows = self.table.remaining[self.trial]
        if stage.suspects:
            rows = rows & self.table.suspects(self.trial)
        if stage.near is not None:
            rows = rows & ((self.table.margin_left[self.trial] <= stage.near) | self.table.unverified[self.trial])
        return rows.nonzero()[:, 0]

    def _run_pooled(self, number: int, rows: Tensor, pool: Pool, verifier: Verifier, tell: Tell | None) -> None:
        stage, table, trial, inputs = self.stages[number], self.table, self.trial, self.table.inputs.of(rows)
        attack, classes = stage.attack, inputs.clean.shape[1]
        rounds = stage.rounds_for(classes)
        record = AttemptRecord(inputs, sum(len(part.attempts) for part in rounds))
        if self.kept is not None:
            record.restore(self.kept)

        def forward(progress: PoolProgress) -> None:
            if tell is not None:
                done = 1 - progress.left / max(progress.left + progress.spent, 1)
                tell(self._progress(number, done, progress.record))

        stream = number if stage.stream is None else stage.stream
        pool.run(attack, inputs, rounds, record=record, stage=stream, tell=forward)
        cost, last, device = attack.cost(classes), attack.last_cost(classes), rows.device
        lengths = np.array([attack.length(attempt.steps) for part in rounds for attempt in part.attempts])
        full = torch.as_tensor(record.full_attempts(lengths), device=device)
        passes, broken = (torch.as_tensor(part, device=device) for part in (record.total_passes(), record.broken))
        table.add(
            trial, number, rows, broken=broken, x_adv=record.x_adv,
            prediction=verifier.logits(record.x_adv).argmax(dim=1), forwards=passes * cost.forwards - full *
            (cost.forwards - last.forwards), backwards=passes * cost.backwards - full * (cost.backwards -
            last.backwards), target=torch.as_tensor(record.target, device=device).long(),
            step=torch.as_tensor(record.found_at_step, device=device).long(),
        )  # fmt: skip
        table.zero_gradient[trial, rows] |= record.zero_gradient
        overflows = pool.coarse == "fp16"  # the copy's numbers then, not the model's: a finer stage looks again
        if not overflows:
            table.not_finite[trial, rows] |= record.not_finite
        table.unverified[trial, rows] |= record.unverified & ~broken
        clean = -success_margin(inputs.clean, inputs.y, inputs.y, reach=False)
        left = (-record.margin / clean).nan_to_num(1.0, 1.0, 1.0)
        left = torch.where(record.not_finite, 0.0, left) if overflows else left
        table.margin_left[trial, rows] = torch.minimum(table.margin_left[trial, rows], left)
        if cost.backwards:  # a search without gradients says nothing about them
            table.add_climb(trial, rows, record.top_loss > record.first_loss)

    def _run_batches(self, number: int, rows: Tensor, model: nn.Module, pool: Pool, verifier: Verifier) -> None:
        attack, table, trial = self.stages[number].attack, self.table, self.trial
        while len(rows):
            part = rows[: max(1, pool.batch_size)]
            inputs = table.inputs.of(part)
            try:
                seen = _Misclassified(inputs, attack.threat)
                looked_at = None if attack.has_gradient_source else seen
                with counted(model, looked_at) as spent, pool.runtime.arithmetic(pool.precision):
                    given = {} if inputs.target is None else {"target": inputs.target}
                    found = attack.search(model, inputs.x, inputs.y, keys=inputs.keys, verdict=True, **given)
            except torch.OutOfMemoryError:
                pool.halve()
                continue
            rows = rows[len(part) :]
            verdict = verifier(found.x_adv, inputs.x, inputs.y, attack, inputs.target)
            table.add(
                trial, number, part, broken=verdict.wrong, x_adv=found.x_adv, prediction=verdict.predicted,
                forwards=torch.full_like(part, spent[0] // len(part)),
                backwards=torch.full_like(part, spent[1] // len(part)),
                target=torch.full_like(part, -1), step=found.broken_at,
            )  # fmt: skip
            table.zero_gradient[trial, part] |= found.zero_gradient
            table.not_finite[trial, part] |= found.not_finite | ~verdict.finite
            table.unverified[trial, part] |= found.fooled & ~verdict.wrong
            table.silent_success[trial, part] |= seen.wrong & ~verdict.wrong
            if found.first_loss.isfinite().any():  # an attack that reports no loss is not blamed for it
                table.add_climb(trial, part, found.best_loss > found.first_loss)

    def _progress(self, stage: int, done: float, record: AttemptRecord | None = None) -> RunProgress:
        remaining = int(self.table.remaining[self.trial].sum()) - (int(record.broken.sum()) if record else 0)
        weights = [_work(one, self.table.inputs.clean.shape[1]) for one in self.stages]
        finished = sum(weights[:stage]) + (done * weights[stage] if stage < len(weights) else 0.0)
        name = self.stages[min(stage, len(self.stages) - 1)].name
        return RunProgress(name, stage, remaining, finished / max(sum(weights), 1.0), record)


def _work(stage: Stage, classes: int) -> float:
    """Work on an image that survives the stage, in forward passes; a backward pass counts as two."""
    attack = stage.attack
    if stage.suspects or stage.near is not None:
        return 0.0
    if not attack.pooled:
        return 3.0 * (attack.steps or 1) * attack.restarts
    passes = sum(attack.length(attempt.steps) for part in stage.rounds_for(classes) for attempt in part.attempts)
    cost = attack.cost(classes)
    return float(passes * (cost.forwards + 2 * cost.backwards))


class _Misclassified:
    """Which images the model saw in a misclassified form inside the ball while a batch attack was searching."""

    def __init__(self, inputs: AttackInputs, threat: Threat) -> None:
        self.inputs, self.threat = inputs, threat
        self.wrong = torch.zeros_like(inputs.y, dtype=torch.bool)

    @torch.no_grad()
    def __call__(self, x: Tensor, logits: Tensor) -> None:
        if x.shape != self.inputs.x.shape or logits.ndim != 2:  # the attack orders its images in its own way
            return
        goal, predicted = self.inputs.target, logits.argmax(dim=1)
        there = predicted != self.inputs.y if goal is None else predicted == goal
        self.wrong |= there & logits.isfinite().all(dim=1) & self.threat.contains(x, self.inputs.x)


@contextlib.contextmanager
def counted(model: nn.Module, seen: Callable[[Tensor, Tensor], None] | None = None) -> Iterator[list[int]]:
    """Images that pass through the model inside the block, and gradients that come back: [forwards, backwards]."""
    passes = [0, 0]

    def back(images: int) -> None:
        passes[1] += images

    def count(module: nn.Module, given: Any, out: Any) -> None:
        if given and isinstance(given[0], Tensor):
            images = len(given[0])
            passes[0] += images
            if given[0].requires_grad:  # several gradients may follow, one for each class
                given[0].register_hook(lambda gradient: back(images))
            if seen is not None and isinstance(out, Tensor):
                seen(given[0].detach(), out.detach().float())

    handle = model.register_forward_hook(count)
    try:
        yield passes
    finally:
        handle.remove()
