"""The slots: a state of fixed shape that each step overwrites; on the GPU the step is replayed as a CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.pool.search import NewItems, State
from hardtack.base.capture import record
from hardtack.base.runtime import Runtime, SearchPrecision

_GRAIN = 8  # widths are multiples of it on the GPU: few shapes, few graphs, and few free rows
_WARM_CALLS = 1


class Slots:
    """Rows of a search's state. Free rows keep computing with their last content, and their results are ignored."""

    def __init__(
        self,
        attack: Attack,
        model: nn.Module,
        runtime: Runtime,
        precision: SearchPrecision | None,
        *,
        most: int,
        interval: int,
        ahead: int = 1,
    ) -> None:
        """At most `most` slots, whose items are checked at multiples of `interval` of their passes."""
        self.attack, self.model, self.runtime, self.precision = attack, model, runtime, precision
        self.most, self.interval, self._most_ahead = most, interval, ahead
        self.state: State = {}
        self.width = 0
        self.free = np.empty(0, dtype=np.int64)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._drawing: torch.cuda.CUDAGraph | None = None
        self._drawn: State = {}  # the random numbers of the passes until the next check
        self._graphed = runtime.torch_device.type == "cuda" and runtime.compile is not False
        self._recording_s = self.passing_s = 0.0  # time of one recording and of one pass
        self.recorded_s = 0.0  # time of all recordings
        self._passes, self._since = 0, time.monotonic()

    def worth_filling(self, running: int, waiting: int, batch_size: int) -> bool:
        """Filling slots costs some kernel launches, so a few free slots wait until there are more of them."""
        room = batch_size - running
        return running == 0 or room >= min(waiting, max(1, batch_size // 16))

    @property
    def ahead(self) -> int:
        """How many passes of each item are made at once: as many as fill the slots that nobody waits for."""
        ahead = 1
        while self.attack.looks_ahead and 2 * ahead <= self._most_ahead and 2 * ahead * self.width <= self.most:
            ahead *= 2
        return ahead

    def place(self, items: NewItems) -> tuple[np.ndarray, int, np.ndarray]:
        """Put new items into slots. Returns these slots, the number of slots there are now, and the items' targets."""
        fresh = self.attack.begin(items)
        count = len(items.x)
        if count > len(self.free):
            self._widen(fresh, count)
        taken, self.free = self.free[:count], self.free[count:]
        index = self.index(taken)
        for name, value in fresh.items():
            self.state[name].index_copy_(0, index, value.to(self.state[name].dtype))
        return taken, self.width, items.target.cpu().numpy()

    def _widen(self, fresh: State, count: int) -> None:
        """Make slots for `count` more items."""
        width = self.width - len(self.free) + count
        if self._graphed:
            width = max(width, min(-(-width // _GRAIN) * _GRAIN, self.most))
        old, self.state = self.state, {}
        for name, value in fresh.items():
            pad = value[:1].expand(width - self.width, *value.shape[1:])
            self.state[name] = torch.cat([old[name], pad]) if old else pad.clone()
        self.free = np.concatenate([self.free, np.arange(self.width, width)])
        self.width, self._graph = width, None

    def shrink(self, occupied: np.ndarray, *, more_to_come: bool, left: int) -> np.ndarray | None:
        """Remove free slots once no item waits, if that saves more over the `left` passes than a new graph costs.

        Returns the slots that are kept, in their new order; None where nothing changed.
        """
        busy = len(occupied)
        self.free = np.setdiff1d(np.arange(self.width), occupied)
        width = min(self.width, -(-busy // _GRAIN) * _GRAIN) if self._graphed else busy
        if more_to_come or busy == 0 or not self._pays(width, left):
            return None
        kept = np.concatenate([occupied, self.free])[:width]
        index = self.index(kept)
        self.state = {name: value[index] for name, value in self.state.items()}
        self.width, self.free, self._graph = width, np.arange(busy, width), None
        return kept

    def _pays(self, width: int, left: int) -> bool:
        if not self._graphed:
            return width < self.width - self.width // 8
        return left / self.ahead * self.passing_s * (1 - width / self.width) > 2 * self._recording_s

    def discard_graph(self) -> None:
        """The model has changed: record the graph again before the next pass."""
        self._graph = None

    def advance(self, passes: int, *, final: bool = False) -> None:
        """Run so many passes on every row. `final`: the last of them is the last of every item."""
        if self._graphed and self._graph is None:
            self._record()
        self._passes, self._since = passes, time.monotonic()
        if self._drawing is not None:
            self._drawing.replay()
        elif self.attack.looks_ahead:
            self._drawn = self.attack.draw(self.state, passes * self.ahead)
        for left in reversed(range(passes)):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._once(self.state, self.attack.finish if final and left == 0 else self._advance)

    def _advance(self, model: nn.Module, state: State) -> State:
        if not self.attack.looks_ahead:
            return self.attack.advance(model, state)
        return self.attack.advance_ahead(model, state, self._drawn, ahead=self.ahead, interval=self.interval)

    def read(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Margins of all slots, which have ended and, where items make several passes at once, how many each has made.

        This is the only synchronisation with the device.
        """
        entries = [self.state["margin"], self.state["done"].float()]
        if self.ahead > 1:
            entries.append(self.state["t"].float())
        margin, done, *made = torch.stack(entries).cpu().numpy()
        self.passing_s = (time.monotonic() - self._since) / max(self._passes, 1)
        return margin, done > 0, made[0].astype(np.int64) if made else None

    def index(self, slots: np.ndarray) -> Tensor:
        return torch.as_tensor(slots, dtype=torch.int64, device=self.runtime.torch_device)

    def _once(self, state: State, run: Callable[[nn.Module, State], State]) -> None:
        with self.runtime.arithmetic(self.precision):
            changed = run(self.model, state)
        if not self._graphed:
            state.update(changed)
            return
        pairs = [(state[name], value) for name, value in changed.items() if value is not state[name]]
        memory = {value.untyped_storage().data_ptr() for value in state.values()}
        pairs = [(old, new.clone() if new.untyped_storage().data_ptr() in memory else new) for old, new in pairs]
        for dtype in {old.dtype for old, _ in pairs}:  # one kernel copies all entries of a type
            old, new = zip(*(pair for pair in pairs if pair[0].dtype == dtype), strict=True)
            torch._foreach_copy_(old, new)

    def _record(self) -> None:
        torch.cuda.synchronize()
        began = time.monotonic()
        stream: Any = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            trial = {name: value.clone() for name, value in self.state.items()}
            if self.attack.looks_ahead:
                self._drawn = self.attack.draw(trial, self.interval * self.ahead)
            for _ in range(_WARM_CALLS):
                self._once(trial, self._advance)
        torch.cuda.current_stream().wait_stream(stream)
        if self.attack.looks_ahead:
            self._drawing, self._drawn = record(lambda: self.attack.draw(self.state, self.interval * self.ahead))
        self._graph, _ = record(lambda: self._once(self.state, self._advance))
        self._graphed = self._graph is not None
        if not self._graphed:
            self._drawing = None
        self._recording_s = time.monotonic() - began
        self.recorded_s += self._recording_s
