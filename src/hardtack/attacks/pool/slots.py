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
from hardtack.base.runtime import Precision, Runtime

_GRAIN = 32  # widths are multiples of it on the GPU: few shapes, few graphs
_WARM_CALLS = 1


class Slots:
    """Rows of a search's state. Free rows keep computing with their last content, and their results are ignored."""

    def __init__(self, attack: Attack, model: nn.Module, runtime: Runtime, precision: Precision | None) -> None:
        self.attack, self.model, self.runtime, self.precision = attack, model, runtime, precision
        self.state: State = {}
        self.width = 0
        self.free = np.empty(0, dtype=np.int64)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._graphed = runtime.torch_device.type == "cuda" and runtime.compile is not False
        self._recording_s = self.passing_s = 0.0  # time of one recording and of one pass
        self.recorded_s = 0.0  # time of all recordings
        self._passes, self._since = 0, time.monotonic()

    def worth_filling(self, running: int, waiting: int, batch_size: int) -> bool:
        """Filling slots costs some kernel launches, so a few free slots wait until there are more of them."""
        room = batch_size - running
        return running == 0 or room >= min(waiting, max(1, batch_size // 16))

    def place(self, items: NewItems, most: int) -> tuple[np.ndarray, int, np.ndarray]:
        """Put new items into slots. Returns these slots, the number of slots there are now, and the items' targets."""
        fresh = self.attack.begin(items)
        count = len(items.x)
        if count > len(self.free):
            self._widen(fresh, count, most)
        taken, self.free = self.free[:count], self.free[count:]
        index = self.index(taken)
        for name, value in fresh.items():
            self.state[name].index_copy_(0, index, value.to(self.state[name].dtype))
        return taken, self.width, items.target.cpu().numpy()

    def _widen(self, fresh: State, count: int, most: int) -> None:
        """Make slots for `count` more items."""
        width = self.width - len(self.free) + count
        if self._graphed:
            width = max(width, min(-(-width // _GRAIN) * _GRAIN, most))
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
        return left * self.passing_s * (1 - width / self.width) > 2 * self._recording_s

    def discard_graph(self) -> None:
        """The model has changed: record the graph again before the next pass."""
        self._graph = None

    def advance(self, passes: int, *, final: bool = False) -> None:
        """Run so many passes on every row. `final`: the last of them is the last of every item."""
        if self._graphed and self._graph is None:
            self._record()
        self._passes, self._since = passes, time.monotonic()
        for left in reversed(range(passes)):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._once(self.state, self.attack.finish if final and left == 0 else self.attack.advance)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Margins of all slots, and which have ended. This is the only synchronisation with the device."""
        margin, done = torch.stack([self.state["margin"], self.state["done"].float()]).cpu().numpy()
        self.passing_s = (time.monotonic() - self._since) / max(self._passes, 1)
        return margin, done > 0

    def index(self, slots: np.ndarray) -> Tensor:
        return torch.as_tensor(slots, dtype=torch.int64, device=self.runtime.torch_device)

    def _once(self, state: State, run: Callable[[nn.Module, State], State]) -> None:
        with self.runtime.arithmetic(self.precision):
            changed = run(self.model, state)
        for name, value in changed.items():
            if value is not state[name]:
                if self._graphed:
                    state[name].copy_(value)
                else:
                    state[name] = value

    def _record(self) -> None:
        torch.cuda.synchronize()
        began = time.monotonic()
        stream: Any = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            trial = {name: value.clone() for name, value in self.state.items()}
            for _ in range(_WARM_CALLS):
                self._once(trial, self.attack.advance)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph, _ = record(lambda: self._once(self.state, self.attack.advance))
        self._graphed = self._graph is not None
        self._recording_s = time.monotonic() - began
        self.recorded_s += self._recording_s
