"""Continuous batching for searches: fixed slots, refilled as images fall or their tries end.

A search never waits for the slowest image of a batch, and no pass is spent on an image that has fallen. Items are
taken in the order of their tries, so that every image meets its first try before any meets its second; when few
images are left, several tries of one image run side by side. Looking at the slots costs a synchronisation, so it
happens every few passes of each item, at ages of its own: what an item does never depends on its neighbours.

A success counts once the verifier has confirmed it in fp32; a claim that is not confirmed lets the search go on. Of
several tries that succeed the first in order is kept, whatever order they happened to end in.
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

from hardtack.attacks.pool.attempts import Attempts, Images
from hardtack.attacks.pool.fast_copy import FastCopy, compile_blocks, search_model
from hardtack.attacks.pool.queue import Queue, Round
from hardtack.attacks.pool.search import Cost, Search, State
from hardtack.attacks.pool.slots import Slots
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Precision, Runtime


class Progress(NamedTuple):
    """Where a stage stands, for whoever shows it."""

    alive: int
    left: int  # passes, at the most
    spent: int


@dataclass
class Pool:
    """Runs searches on a model. `batch_size` is the number of slots; out of memory halves it."""

    model: nn.Module
    runtime: Runtime
    batch_size: int
    verifier: Verifier
    precision: Precision | None = None  # to run the model under: a double in bf16 needs no autocast
    coarse: Precision = "fp32"  # what the search computes in
    patience_s: float | None = None  # compile the model's blocks when a stage has longer than this to go; None: never
    every: int = 5  # passes of an item between two looks at it
    spent: Cost = field(default_factory=Cost)  # passes of items
    slot_passes: int = 0  # passes of slots, empty ones included
    recorded_s: float = 0.0  # spent on recording graphs, compilation included

    def run(
        self,
        attack: Search,
        images: Images,
        rounds: list[Round] | None = None,
        *,
        attempts: Attempts | None = None,
        salt: int = 0,
        tell: Callable[[Progress, Attempts], None] | None = None,
    ) -> Attempts:
        """Attack all `images`; a `attempts` of an earlier call is continued. Another `salt`, other random numbers."""
        classes = images.clean.shape[1]
        rounds = rounds or [Round(tuple(attack.tries(classes)))]
        if attack.reach and images.target is None and any(one.rank < 0 for part in rounds for one in part.tries):
            raise UserError("reach=true needs classes to reach: set targets, or in Python give target=…")
        attempts = attempts or Attempts(images, sum(len(part.tries) for part in rounds))
        queue = Queue(attack, images, rounds, attempts, salt=salt)
        while queue.waiting:
            try:
                self._work(attack, queue, tell)
            except torch.OutOfMemoryError:
                queue.put_back()
                self.halve()
        return attempts

    def finer(self, model: nn.Module, probe: Tensor) -> Pool:
        """The same pool with less rounding: TF32 for bf16, which is eight times as fine; itself where it has none."""
        if self.coarse == "fp32":
            return self
        wanted: Precision = "tf32" if self.coarse == "bf16" and self.runtime.torch_device.type == "cuda" else "fp32"
        made, precision = search_model(model, self.runtime, wanted, probe)
        return dataclasses.replace(
            self, model=made, precision=precision, coarse=wanted, patience_s=None, spent=Cost(), slot_passes=0
        )

    def halve(self) -> None:
        """Memory has run out."""
        if self.batch_size == 1:
            raise UserError("the model does not fit into memory with a single image") from None
        self.batch_size //= 2
        torch.cuda.empty_cache()

    def _work(self, attack: Search, queue: Queue, tell: Callable[[Progress, Attempts], None] | None) -> None:
        slots = Slots(attack, self._step(attack), self.runtime, self.precision)
        cost, told, passed = attack.cost(queue.images.clean.shape[1]), time.monotonic(), 0
        while queue.waiting or queue.busy:
            if queue.waiting and slots.worth_filling(queue.busy, len(queue.waiting), self.batch_size):
                items = queue.take(self.batch_size - queue.busy)
                if items:
                    queue.seat(items, *slots.seat(queue.work(items), self.batch_size))
            if not queue.busy:
                continue
            passes = queue.until_a_look(self.every * attack.patience)
            slots.advance(passes)
            queue.grow_older(passes)
            self.spent = self.spent.plus(cost.times(passes * queue.busy))
            self.slot_passes += passes * slots.width
            passed += passes * queue.busy
            self._look(attack, queue, slots)
            self.recorded_s, slots.recorded_s = self.recorded_s + slots.recorded_s, 0.0
            waits = bool(queue.waiting)
            queue.move(slots.shrink(queue.occupied(), more_to_come=waits, left=queue.longest() if not waits else 0))
            if time.monotonic() - told > 0.5:
                told = time.monotonic()
                self._compile_if_it_pays(queue, slots)
                if tell is not None:
                    tell(Progress(queue.alive, queue.passes_left(), passed), queue.attempts)

    def _look(self, attack: Search, queue: Queue, slots: Slots) -> None:
        """Verifier the claims of the items whose time has come, and clear the slots of those that are over."""
        due = queue.due(self.every * attack.patience)
        if not len(due):
            return
        margin, done = slots.read()
        claims = due[margin[due] > 0]
        won = self._confirm(attack, queue, slots, claims) if len(claims) else claims
        over = due[done[due] | queue.ended(due)]
        queue.win(won, slots)
        queue.close(over[~np.isin(over, won)], slots)

    def _confirm(self, attack: Search, queue: Queue, slots: Slots, claims: np.ndarray) -> np.ndarray:
        """The slots whose image the verifier confirms. The others forget it and continue."""
        index, state = slots.index(claims), slots.state
        target = state["target"][index] if attack.reach else None
        verdict = self.verifier(state["closest"][index], state["x"][index], state["y"][index], attack, target)
        right = verdict.wrong.cpu().numpy()
        if not right.all():
            refused = claims[~right]
            state["margin"].index_fill_(0, slots.index(refused), -torch.inf)
            queue.attempts.unverified[queue.rows(refused)] = True
        return claims[right]

    def _step(self, attack: Search) -> Callable[[State], State]:
        return lambda state: attack.step(self.model, state)

    def _compile_if_it_pays(self, queue: Queue, slots: Slots) -> None:
        """Graphs of eager kernels start at once; a long stage is worth the seconds that better kernels take to make."""
        if self.patience_s is None or not isinstance(self.model, FastCopy):
            return
        if queue.passes_left() / self.batch_size * slots.passing_s > self.patience_s:
            compile_blocks(self.model)
            slots.forget()
            self.patience_s = None
