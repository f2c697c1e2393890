"""Which items wait, which item runs in which slot, and how attempts end. Everything here is on the host, in arrays."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardtack.attacks.contract import Attack
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.search import NewItems, PlannedAttempt
from hardtack.attacks.pool.slots import Slots
from hardtack.attacks.targets import ranking
from hardtack.base import randomness


@dataclass(frozen=True)
class Round:
    """Attempts that begin when those of the round before are finished.

    `near`: only for images that have no more than this share of their clean margin left at the closest point found.
    `closest_first`: target classes are ranked at the closest image found, not at the clean image.
    """

    attempts: tuple[PlannedAttempt, ...]
    near: float | None = None
    closest_first: bool = False


class Item(NamedTuple):
    """One attempt on one image. Items wait in the order of these fields."""

    number: int  # of the attempt
    row: int  # of the image
    round: int


_RANKS = 4096  # more than there are target ranks: restart and rank become one word of the random key


class Queue:
    """The items of one stage. The arrays `row` … `target` have an entry per slot; `row` is −1 where a slot is free."""

    def __init__(
        self, attack: Attack, inputs: AttackInputs, rounds: list[Round], record: AttemptRecord, *, stage: int = 0
    ) -> None:
        self.attack, self.inputs, self.rounds, self.record, self.stage = attack, inputs, rounds, record, stage
        self.planned = [attempt for part in rounds for attempt in part.attempts]
        self.lengths = np.array([attack.length(attempt.steps) for attempt in self.planned])
        self.first = np.cumsum([0, *(len(part.attempts) for part in rounds)])
        self.waiting: list[Item] = []  # a heap
        self.taken: list[Item] = []  # removed from `waiting`, not yet in a slot
        self.unfinished = np.zeros(len(inputs.x), dtype=np.int64)  # attempts of the image's current round
        self.row = self.number = self.round = self.age = self.target = np.empty(0, dtype=np.int64)
        self._enter_round(np.flatnonzero(~record.broken), 0)
        self._resume_earlier_attempts(np.flatnonzero(record.broken))

    # ------------------------------------------------------------ items that wait

    def _resume_earlier_attempts(self, rows: np.ndarray) -> None:
        """Of broken images, the unfinished attempts before the successful one: one of them may succeed as well."""
        for row in rows.tolist():
            for number in np.flatnonzero(self.record.passes[row, : self.record.successful[row]] < 0).tolist():
                part = int(np.searchsorted(self.first, number, side="right")) - 1
                heapq.heappush(self.waiting, Item(number, row, part))

    def _enter_round(self, rows: np.ndarray, number: int) -> None:
        """Let images enter a round, and the following ones where all of its attempts are finished already."""
        while len(rows) and number < len(self.rounds):
            part, first = self.rounds[number], int(self.first[number])
            finished = self.record.passes[rows, first : first + len(part.attempts)] >= 0
            inside, fresh = rows[finished.any(axis=1)], rows[~finished.any(axis=1)]  # inside: of a run that is resumed
            if part.near is not None and len(fresh):
                fresh = fresh[self.record.is_near(self.inputs, fresh, part.near)]
            if part.closest_first and len(fresh):
                index = torch.as_tensor(fresh, device=self.record.ranks.device)
                self.record.ranks[index] = ranking(self.record.logits[index], self.inputs.y[index])
            rows = np.sort(np.concatenate([inside, fresh]))
            open_ = self.record.passes[rows, first : first + len(part.attempts)] < 0
            self.unfinished[rows] = open_.sum(axis=1)
            for place, offset in np.argwhere(open_).tolist():
                heapq.heappush(self.waiting, Item(first + offset, int(rows[place]), number))
            rows, number = rows[~open_.any(axis=1)], number + 1

    def take(self, count: int) -> list[Item]:
        """The next items of images that are not broken, or broken only by a later attempt."""
        self.taken = []
        while self.waiting and len(self.taken) < count:
            item = heapq.heappop(self.waiting)
            if not 0 <= self.record.successful[item.row] < item.number:
                self.taken.append(item)
        return self.taken

    def new_items(self, items: list[Item]) -> NewItems:
        """The rows that a search begins with."""
        attempts, device = [self.planned[item.number] for item in items], self.inputs.x.device
        rows = torch.tensor([item.row for item in items], device=device)
        rank = torch.tensor([attempt.rank for attempt in attempts], device=device)
        word = torch.tensor([attempt.restart * _RANKS + attempt.rank + 1 for attempt in attempts], device=device)
        inputs = self.inputs.of(rows)
        target = inputs.target
        if target is None:
            ranks = self.record.ranks[rows]
            ranked = ranks.gather(1, rank.clamp(0, ranks.shape[1] - 1)[:, None])[:, 0]
            target = torch.where(rank < 0, -1, ranked)
        return NewItems(
            x=inputs.x, y=inputs.y, target=target,
            keys=randomness.make_keys(inputs.keys, self.attack.seed, self.stage, word), image_keys=inputs.keys,
            restart=torch.tensor([attempt.restart for attempt in attempts], device=device),
            steps=torch.tensor([attempt.steps for attempt in attempts], device=device), clean=inputs.clean,
            start=self.record.x_adv[rows], warm=torch.tensor([attempt.warm for attempt in attempts], device=device),
        )  # fmt: skip

    # ------------------------------------------------------------ items that run

    def place(self, items: list[Item], slots: np.ndarray, width: int, targets: np.ndarray) -> None:
        """Note which item runs in which slot; there are now `width` slots."""
        grown = width - len(self.row)
        if grown > 0:
            free = np.full(grown, -1, dtype=np.int64)
            self._each_slot(lambda values: np.concatenate([values, free]))
        self.number[slots], self.row[slots], self.round[slots] = np.array(items).T
        self.age[slots], self.target[slots] = 0, targets
        self.taken = []

    def _each_slot(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.row, self.number, self.round, self.age, self.target = map(
            change, (self.row, self.number, self.round, self.age, self.target)
        )

    def occupied(self) -> np.ndarray:
        return np.flatnonzero(self.row >= 0)

    @property
    def busy(self) -> int:
        return int((self.row >= 0).sum())

    def move(self, kept: np.ndarray | None) -> None:
        """The slots were compacted: those in `kept` are now the first ones."""
        if kept is not None:
            self._each_slot(lambda values: values[kept])

    def put_back(self) -> None:
        """Return all running items to the queue; they will start again."""
        running = [Item(int(self.number[at]), int(self.row[at]), int(self.round[at])) for at in self.occupied()]
        for item in running + self.taken:
            heapq.heappush(self.waiting, item)
        self.taken = []
        self.row = self.number = self.round = self.age = self.target = np.empty(0, dtype=np.int64)

    def passes_until_check(self, every: int) -> int:
        slots = self.occupied()
        age = self.age[slots]
        return int(np.minimum(every - age % every, self.lengths[self.number[slots]] - age).min())

    def all_end_after(self, passes: int) -> bool:
        """Whether every running item ends after so many more passes."""
        slots = self.occupied()
        return bool((self.age[slots] + passes >= self.lengths[self.number[slots]]).all())

    def add_passes(self, passes: int, made: np.ndarray | None = None) -> int:
        """`made`: passes that every slot's item has made by now, where they differ. Returns how many are new."""
        age, slots = self.age + passes if made is None else made, self.occupied()
        total = int((age - self.age)[slots].sum())
        self.age = age
        return total

    def due(self, every: int) -> np.ndarray:
        """The slots whose items are to be checked now: every so many of their own passes, and at their end."""
        slots = self.occupied()
        return slots[(self.age[slots] % every == 0) | self.ended(slots)]

    def ended(self, slots: np.ndarray) -> np.ndarray:
        return self.age[slots] >= self.lengths[self.number[slots]]

    def rows(self, slots: np.ndarray) -> Tensor:
        return torch.as_tensor(self.row[slots], device=self.inputs.x.device)

    # ------------------------------------------------------------ how attempts end

    def finish_successes(self, succeeded: np.ndarray, slots: Slots) -> None:
        """Record verified successes and stop later attempts on those images; earlier ones may still replace them."""
        if not len(succeeded):
            return
        succeeded = succeeded[np.lexsort((self.number[succeeded], self.row[succeeded]))]
        rows, numbers = self.row[succeeded], self.number[succeeded]
        self.record.passes[rows, numbers] = self.age[succeeded]
        for part in self._without_repeats(succeeded):
            self.record.add_observations(self.rows(part), slots.index(part), slots.state)
        first = np.concatenate([[True], rows[1:] != rows[:-1]])  # the earliest of several successes on one image
        before = self.record.successful[rows]
        kept = succeeded[first & ((before < 0) | (numbers < before))]
        self.record.add_successes(self.row[kept], self.number[kept], self.target[kept], slots.index(kept), slots.state)
        self.row[succeeded] = -1
        busy = self.occupied()
        successful = self.record.successful[self.row[busy]]
        self.row[busy[(successful >= 0) & (successful < self.number[busy])]] = -1

    def finish_failures(self, failed: np.ndarray, slots: Slots) -> None:
        """Record attempts that ended without success; where they were the last of a round, the next round begins."""
        failed = failed[self.row[failed] >= 0]
        if not len(failed):
            return
        for part in self._without_repeats(failed[self.record.successful[self.row[failed]] < 0]):
            self.record.add_failures(self.rows(part), self.number[part], slots.index(part), slots.state)
        rows, rounds = self.row[failed], self.round[failed]
        self.record.passes[rows, self.number[failed]] = self.age[failed]
        np.subtract.at(self.unfinished, rows, 1)
        self.row[failed] = -1
        through = (self.unfinished[rows] == 0) & (self.record.successful[rows] < 0)
        for number in np.unique(rounds[through]):
            self._enter_round(np.unique(rows[through & (rounds == number)]), int(number) + 1)

    def _without_repeats(self, slots: np.ndarray) -> Iterator[np.ndarray]:
        """The slots in the order of their attempts, in parts that contain no image twice."""
        slots = slots[np.argsort(self.number[slots], kind="stable")]
        while len(slots):
            _, first = np.unique(self.row[slots], return_index=True)
            yield slots[np.sort(first)]
            slots = np.delete(slots, first)

    def longest(self) -> int:
        """The number of passes that the longest of the running items may still take."""
        slots = self.occupied()
        return int((self.lengths[self.number[slots]] - self.age[slots]).max()) if len(slots) else 0

    def passes_left(self) -> int:
        """An upper bound over the rounds that have begun."""
        slots = self.occupied()
        running = int((self.lengths[self.number[slots]] - self.age[slots]).sum())
        waiting = Counter(map(itemgetter(0), self.waiting))  # by attempt; there may be hundreds of thousands of items
        return running + sum(int(self.lengths[number]) * count for number, count in waiting.items())
