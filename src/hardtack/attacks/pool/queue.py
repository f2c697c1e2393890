"""Which items wait, which run in which slot, and what becomes of them. All of it on the host, in arrays."""

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

from hardtack.attacks.pool.attempts import Attempts, Images, ranking
from hardtack.attacks.pool.search import Search, Try, Work
from hardtack.attacks.pool.slots import Slots
from hardtack.base import randomness


@dataclass(frozen=True)
class Round:
    """Tries that begin when those of the round before are over. `enters` says which images go on (default: all).

    It goes by what the attempts says of each image, and by nothing else: it may be asked again when a run is taken up.
    """

    tries: tuple[Try, ...]
    enters: Callable[[Attempts, Images, np.ndarray], np.ndarray] | None = None
    closest_first: bool = False  # targets are ranked at the closest image found, not at the clean one


class Item(NamedTuple):
    order: int  # among all tries of the image
    row: int
    round: int


class Queue:
    """The items of one stage. Slot arrays hold −1 in `row` where a slot is free."""

    def __init__(
        self, attack: Search, images: Images, rounds: list[Round], attempts: Attempts, *, salt: int = 0
    ) -> None:
        self.attack, self.images, self.rounds, self.attempts, self.salt = attack, images, rounds, attempts, salt
        self.tries = [one for part in rounds for one in part.tries]
        self.lengths = np.array([attack.length(one.steps) for one in self.tries])
        self.first = np.cumsum([0, *(len(part.tries) for part in rounds)])
        self.waiting: list[Item] = []  # a heap
        self.taken: list[Item] = []  # on their way from there to a slot
        self.unfinished = np.zeros(len(images.x), dtype=np.int64)  # tries of the image's current round
        self.row = self.order = self.round = self.age = self.target = np.empty(0, dtype=np.int64)
        self._open(np.flatnonzero(~attempts.fallen), 0)
        self._owe(np.flatnonzero(attempts.fallen))

    # ------------------------------------------------------------ what waits

    def _owe(self, rows: np.ndarray) -> None:
        """Images that fell while earlier tries of theirs were under way: those may still come first."""
        for row in rows.tolist():
            for order in np.flatnonzero(self.attempts.used[row, : self.attempts.won[row]] < 0).tolist():
                number = int(np.searchsorted(self.first, order, side="right")) - 1
                heapq.heappush(self.waiting, Item(order, row, number))

    def _open(self, rows: np.ndarray, number: int) -> None:
        """Let images into a round, and on into the next ones where nothing of it is left to do."""
        while len(rows) and number < len(self.rounds):
            part, first = self.rounds[number], int(self.first[number])
            made = self.attempts.used[rows, first : first + len(part.tries)] >= 0
            inside, fresh = rows[made.any(axis=1)], rows[~made.any(axis=1)]  # of a run that is taken up again
            if part.enters is not None and len(fresh):
                fresh = fresh[part.enters(self.attempts, self.images, fresh)]
            if part.closest_first and len(fresh):
                index = torch.as_tensor(fresh, device=self.attempts.ranks.device)
                self.attempts.ranks[index] = ranking(self.attempts.logits[index], self.images.y[index])
            rows = np.sort(np.concatenate([inside, fresh]))
            unmade = self.attempts.used[rows, first : first + len(part.tries)] < 0
            self.unfinished[rows] = unmade.sum(axis=1)
            for place, offset in np.argwhere(unmade).tolist():
                heapq.heappush(self.waiting, Item(first + offset, int(rows[place]), number))
            rows, number = rows[~unmade.any(axis=1)], number + 1

    def take(self, count: int) -> list[Item]:
        """The next items of images that still stand, or fell to a later try."""
        self.taken = []
        while self.waiting and len(self.taken) < count:
            item = heapq.heappop(self.waiting)
            if not 0 <= self.attempts.won[item.row] < item.order:
                self.taken.append(item)
        return self.taken

    def work(self, items: list[Item]) -> Work:
        """The rows that a search begins with."""
        tries, device = [self.tries[item.order] for item in items], self.images.x.device
        rows = torch.tensor([item.row for item in items], device=device)
        rank = torch.tensor([one.rank for one in tries], device=device)
        salt = torch.tensor([one.restart * 4096 + one.rank + 1 for one in tries], device=device)
        images = self.images.of(rows)
        target = images.target
        if target is None:
            ranks = self.attempts.ranks[rows]
            aimed = ranks.gather(1, rank.clamp(0, ranks.shape[1] - 1)[:, None])[:, 0]
            target = torch.where(rank < 0, -1, aimed)
        warm = torch.tensor([one.warm for one in tries], device=device)
        return Work(
            x=images.x, y=images.y, target=target,
            keys=randomness.make_keys(images.keys, self.attack.seed, self.salt, salt),
            restart=torch.tensor([one.restart for one in tries], device=device),
            steps=torch.tensor([one.steps for one in tries], device=device), clean=images.clean,
            start=self.attempts.x_adv[rows], warm=warm,
        )  # fmt: skip

    # ------------------------------------------------------------ what runs

    def seat(self, items: list[Item], slots: np.ndarray, width: int, targets: np.ndarray) -> None:
        """Note who sits in which slot."""
        grown = width - len(self.row)
        if grown > 0:
            more = np.full(grown, -1, dtype=np.int64)
            names = ("row", "order", "round", "age", "target")
            for name in names:
                setattr(self, name, np.concatenate([getattr(self, name), more]))
        self.order[slots], self.row[slots], self.round[slots] = np.array(items).T
        self.age[slots], self.target[slots] = 0, targets
        self.taken = []

    def occupied(self) -> np.ndarray:
        return np.flatnonzero(self.row >= 0)

    @property
    def busy(self) -> int:
        return int((self.row >= 0).sum())

    def move(self, kept: np.ndarray | None) -> None:
        """The slots were closed up: those in `kept` are now the first ones."""
        if kept is not None:
            for name in ("row", "order", "round", "age", "target"):
                setattr(self, name, getattr(self, name)[kept])

    def put_back(self) -> None:
        """Begin again with everything that was under way."""
        running = [Item(int(self.order[at]), int(self.row[at]), int(self.round[at])) for at in self.occupied()]
        for item in running + self.taken:
            heapq.heappush(self.waiting, item)
        self.taken = []
        self.row = self.order = self.round = self.age = self.target = np.empty(0, dtype=np.int64)

    def until_a_look(self, every: int) -> int:
        slots = self.occupied()
        age = self.age[slots]
        return int(np.minimum(every - age % every, self.lengths[self.order[slots]] - age).min())

    def grow_older(self, passes: int) -> None:
        self.age += passes

    def due(self, every: int) -> np.ndarray:
        slots = self.occupied()
        return slots[(self.age[slots] % every == 0) | self.ended(slots)]

    def ended(self, slots: np.ndarray) -> np.ndarray:
        return self.age[slots] >= self.lengths[self.order[slots]]

    def rows(self, slots: np.ndarray) -> Tensor:
        return torch.as_tensor(self.row[slots], device=self.images.x.device)

    # ------------------------------------------------------------ how it ends

    def win(self, won: np.ndarray, slots: Slots) -> None:
        """Enter confirmed successes, and stop the later tries of those images; earlier ones may still replace them."""
        if not len(won):
            return
        won = won[np.lexsort((self.order[won], self.row[won]))]
        rows, orders = self.row[won], self.order[won]
        self.attempts.used[rows, orders] = self.age[won]
        for part in self._apart(won):
            self.attempts.observe(self.rows(part), slots.index(part), slots.state)
        first = np.concatenate([[True], rows[1:] != rows[:-1]])  # the earliest of several of one image
        known = self.attempts.won[rows]
        kept = won[first & ((known < 0) | (orders < known))]
        self.attempts.enter(self.row[kept], self.order[kept], self.target[kept], slots.index(kept), slots.state)
        self.row[won] = -1
        busy = self.occupied()
        later = self.attempts.won[self.row[busy]]
        self.row[busy[(later >= 0) & (later < self.order[busy])]] = -1

    def close(self, over: np.ndarray, slots: Slots) -> None:
        """Tries that ended without success; where they were the last of a round, the next one opens."""
        over = over[self.row[over] >= 0]
        if not len(over):
            return
        for part in self._apart(over[self.attempts.won[self.row[over]] < 0]):
            self.attempts.learn(self.rows(part), self.order[part], slots.index(part), slots.state)
        rows, rounds = self.row[over], self.round[over]
        self.attempts.used[rows, self.order[over]] = self.age[over]
        np.subtract.at(self.unfinished, rows, 1)
        self.row[over] = -1
        through = (self.unfinished[rows] == 0) & (self.attempts.won[rows] < 0)
        for number in np.unique(rounds[through]):
            self._open(np.unique(rows[through & (rounds == number)]), int(number) + 1)

    def _apart(self, slots: np.ndarray) -> Iterator[np.ndarray]:
        """The slots in the order of their tries, in parts that hold no image twice."""
        slots = slots[np.argsort(self.order[slots], kind="stable")]
        while len(slots):
            _, first = np.unique(self.row[slots], return_index=True)
            yield slots[np.sort(first)]
            slots = np.delete(slots, first)

    def longest(self) -> int:
        """Passes that the longest of the running items may still take."""
        slots = self.occupied()
        return int((self.lengths[self.order[slots]] - self.age[slots]).max()) if len(slots) else 0

    @property
    def alive(self) -> int:
        return int((self.attempts.won < 0).sum())

    def passes_left(self) -> int:
        """At the most: of the rounds that are open."""
        slots = self.occupied()
        running = int((self.lengths[self.order[slots]] - self.age[slots]).sum())
        waiting = Counter(map(itemgetter(0), self.waiting))  # by order; there may be hundreds of thousands
        return running + sum(int(self.lengths[order]) * count for order, count in waiting.items())
