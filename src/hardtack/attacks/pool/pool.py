"""Continuous batching for searches: a fixed number of slots, refilled as images are broken or their attempts end.

No search waits for the slowest image of a batch, and no pass is spent on an image that is broken. Items are taken in
the order of their attempts, so that the first attempt on every image begins before any second one; when few images
remain, several attempts on one image run side by side. Reading the slots synchronises with the device, so each item is
checked only every few passes, counted from its own start: what an item does never depends on the other items.

A success counts once the verifier has confirmed it in fp32; after a success that is not confirmed the search continues.
Of several attempts that succeed the first in order is kept, whatever the order in which they ended.

On a GPU a batch that is half empty takes as long as a full one. When no item waits, an attack that can look ahead
(Square) makes several passes of each item at once, and counts those that it would have made one after the other.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.fast_copy import FastCopy, search_model
from hardtack.attacks.pool.queue import Queue, Round
from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.slots import Slots
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime, SearchPrecision


class PoolProgress(NamedTuple):
    """How far the pool has come with a stage."""

    left: int  # passes, at most
    spent: int  # passes
    record: AttemptRecord


@dataclass
class Pool:
    """Runs pooled attacks on a model. `batch_size` is the number of slots; it is halved when memory runs out."""

    model: nn.Module
    runtime: Runtime
    batch_size: int
    verifier: Verifier
    precision: SearchPrecision | None = None  # to run the model under: a fast copy in bf16 needs no autocast
    coarse: SearchPrecision = "fp32"  # what the search computes in
    compile_after_s: float | None = None  # compile the model's blocks if a stage will take longer; None: never
    every: int = 5  # passes of an item between two checks
    ahead: int | None = None  # passes of an item that are made at once, at most; None: as the device likes it
    spent: Cost = field(default_factory=Cost)  # passes of items
    slot_passes: int = 0  # passes of slots, free ones included
    recorded_s: float = 0.0  # time spent on recording graphs, compilation included

    def run(
        self,
        attack: Attack,
        inputs: AttackInputs,
        rounds: list[Round] | None = None,
        *,
        record: AttemptRecord | None = None,
        stage: int = 0,
        tell: Callable[[PoolProgress], None] | None = None,
    ) -> AttemptRecord:
        """Attack all `inputs`; the `record` of an interrupted call is continued. Random numbers differ by `stage`."""
        classes = inputs.clean.shape[1]
        rounds = rounds or [Round(tuple(attack.attempts(classes)))]
        planned = [attempt for part in rounds for attempt in part.attempts]
        if attack.reach and inputs.target is None and any(attempt.rank < 0 for attempt in planned):
            raise UserError("reach=true needs classes to reach: set targets, or in Python give target=…")
        record = record or AttemptRecord(inputs, len(planned))
        queue = Queue(attack, inputs, rounds, record, stage=stage)
        while queue.waiting:
            try:
                self._work(attack, queue, tell)
            except torch.OutOfMemoryError:
                queue.put_back()
                self.halve()
        return record

    def finer(self, model: nn.Module, probe: Tensor, wanted: SearchPrecision | None = None) -> Pool:
        """A pool with less rounding: TF32 instead of bf16 or fp16; itself if it is in fp32."""
        if self.coarse == "fp32":
            return self
        if wanted is None:
            wanted = "tf32" if self.coarse in ("bf16", "fp16") and self.runtime.torch_device.type == "cuda" else "fp32"
        copy, precision, coarse = search_model(model, self.runtime, wanted, probe)
        return dataclasses.replace(
            self, model=copy, precision=precision, coarse=coarse, compile_after_s=None, spent=Cost(), slot_passes=0
        )

    def exact(self, model: nn.Module) -> Pool:
        """A pool that searches on the model itself, in fp32."""
        return dataclasses.replace(
            self, model=model, precision="fp32", coarse="fp32", compile_after_s=None, spent=Cost(), slot_passes=0
        )

    def halve(self) -> None:
        """Use half as many slots, because memory has run out."""
        if self.batch_size == 1:
            raise UserError(
                "memory ran out with a single image in the batch: use a smaller model, or a device with more memory"
            ) from None
        self.batch_size //= 2
        torch.cuda.empty_cache()

    def _work(self, attack: Attack, queue: Queue, tell: Callable[[PoolProgress], None] | None) -> None:
        interval = self.every * attack.check_interval
        ahead = self.ahead or (attack.most_ahead if self.runtime.torch_device.type == "cuda" else 1)
        slots = Slots(
            attack, self.model, self.runtime, self.precision, most=self.batch_size, interval=interval, ahead=ahead
        )
        classes, told, spent = queue.inputs.clean.shape[1], time.monotonic(), 0
        while queue.waiting or queue.busy:
            if queue.waiting and slots.worth_filling(queue.busy, len(queue.waiting), self.batch_size):
                items = queue.take(self.batch_size - queue.busy)
                if items:
                    queue.place(items, *slots.place(queue.new_items(items)))
            if not queue.busy:
                continue
            passes = queue.passes_until_check(interval)
            if slots.ahead > 1:  # items check themselves; see Attack.advance_ahead
                passes = min(interval, -(-queue.longest() // slots.ahead))
            final = slots.ahead == 1 and queue.all_end_after(passes)
            slots.advance(passes, final=final)
            margin, done, made = slots.read()
            total = queue.add_passes(passes, made)
            self.spent = self.spent.plus(attack.cost(classes).times(total - final * queue.busy))
            self.spent = self.spent.plus(attack.last_cost(classes).times(final * queue.busy))
            self.slot_passes += passes * slots.width * slots.ahead
            spent += total
            self._check(attack, queue, slots, margin, done)
            self.recorded_s, slots.recorded_s = self.recorded_s + slots.recorded_s, 0.0
            waits = bool(queue.waiting)
            queue.move(slots.shrink(queue.occupied(), more_to_come=waits, left=queue.longest() if not waits else 0))
            if time.monotonic() - told > 0.5:
                told = time.monotonic()
                self._compile_if_it_pays(queue, slots)
                if tell is not None:
                    tell(PoolProgress(queue.passes_left(), spent, queue.record))

    def _check(self, attack: Attack, queue: Queue, slots: Slots, margin: np.ndarray, done: np.ndarray) -> None:
        """Verify the items that are due and claim a success, and free the slots of those that have ended."""
        due = queue.due(self.every * attack.check_interval)
        claimed = due[margin[due] > 0]
        succeeded = self._verify(attack, queue, slots, claimed) if len(claimed) else claimed
        ended = due[done[due] | queue.ended(due)]
        queue.finish_successes(succeeded, slots)
        queue.finish_failures(ended[~np.isin(ended, succeeded)], slots)

    def _verify(self, attack: Attack, queue: Queue, slots: Slots, claimed: np.ndarray) -> np.ndarray:
        """The slots whose closest image the verifier confirms. The others discard it and continue their search."""
        index, state = slots.index(claimed), slots.state
        target = state["target"][index] if attack.reach else None
        verdict = self.verifier(state["closest"][index], state["x"][index], state["y"][index], attack, target)
        confirmed = verdict.wrong.cpu().numpy()
        if not confirmed.all():
            refused = claimed[~confirmed]
            for name in ("margin", "score"):
                if name in state:
                    state[name].index_fill_(0, slots.index(refused), -torch.inf)
            queue.record.unverified[queue.rows(refused)] = True
        return claimed[confirmed]

    def _compile_if_it_pays(self, queue: Queue, slots: Slots) -> None:
        """Graphs of eager kernels need no preparation; a long stage is worth the seconds that compilation takes."""
        if self.compile_after_s is None or not isinstance(self.model, FastCopy):
            return
        if queue.passes_left() / self.batch_size * slots.passing_s > self.compile_after_s:
            self.model.compile_blocks()
            slots.discard_graph()
            self.compile_after_s = None
