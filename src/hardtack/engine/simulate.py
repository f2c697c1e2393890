"""How long a job takes on many workers: the real schedule, driven by a virtual clock.

Only time is simulated. Which piece a worker gets, what waits for what and how often a piece may be lost are decided by
the same `Schedule` that the executors use. `benchmarks/scale.py` and `hardtack plan … --on` use it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hardtack.base.errors import UserError
from hardtack.engine.pieces import Span
from hardtack.engine.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The workers of a simulation.

    workers             places for workers: GPUs, or shares of them
    startup_s           from the start of a worker until it can compute
    slow_share          this share of the places, rounded to whole places, computes slower
    slow_factor         a piece takes so many times longer there
    failures_per_hour   of one worker, at random times; it is replaced, which takes `startup_s`
    kept_every_s        a lost piece continues from its last checkpoint, written so often; None: it begins again
    """

    workers: int
    startup_s: float = 0.0
    slow_share: float = 0.0
    slow_factor: float = 1.0
    failures_per_hour: float = 0.0
    kept_every_s: float | None = None

    def __post_init__(self) -> None:
        for name, right in {
            "workers": self.workers >= 1, "startup_s": self.startup_s >= 0, "slow_share": 0 <= self.slow_share <= 1,
            "slow_factor": self.slow_factor >= 1, "failures_per_hour": self.failures_per_hour >= 0,
            "kept_every_s": self.kept_every_s is None or self.kept_every_s > 0,
        }.items():  # fmt: skip
            if not right:
                raise UserError(f"a simulation cannot have {name}={getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What a simulated job took. `ideal_s` is the sum of all pieces on a worker of full speed that is never lost."""

    workers: int
    wall_s: float
    ideal_s: float
    busy_s: float  # of all workers, in pieces; with work that was lost
    lost_s: float  # of all workers, in work that had to be repeated
    lost_pieces: int  # each as often as it was lost

    @property
    def held_s(self) -> float:
        """Of all workers, from the beginning to the end: what a cluster counts."""
        return self.workers * self.wall_s

    @property
    def efficiency(self) -> float:
        """The share of the held time that an ideal worker would have needed."""
        return self.ideal_s / self.held_s if self.held_s else 1.0


def simulate(schedule: Schedule, seconds: Callable[[Span], float], fleet: Fleet, *, seed: int = 0) -> Simulated:
    """Run a schedule to its end. `seconds` are those that a piece really takes on a worker of full speed.

    The result follows from the arguments and the seed. Raises what the schedule raises where a piece is lost too often.
    """
    return _Simulation(schedule, seconds, fleet, random.Random(seed)).run()


@dataclass
class _Worker:
    """A place for a worker, and the worker that is there now."""

    factor: float
    fails_at: float = math.inf
    span: Span | None = None
    began: float = 0.0


@dataclass
class _Simulation:
    schedule: Schedule
    seconds: Callable[[Span], float]
    fleet: Fleet
    rng: random.Random
    busy_s: float = 0.0
    lost_s: float = 0.0
    ideal_s: float = 0.0
    lost_pieces: int = 0
    now: float = 0.0
    left: dict[Span, float] = field(default_factory=dict)  # seconds that are left of pieces that were begun
    events: list[tuple[float, int]] = field(default_factory=list)  # when a worker is ready, finishes or fails

    def run(self) -> Simulated:
        places = range(self.fleet.workers)
        slow = set(self.rng.sample(places, round(self.fleet.slow_share * self.fleet.workers)))
        self.workers = [_Worker(self.fleet.slow_factor if place in slow else 1.0) for place in places]
        for place in places:
            self._start(place, 0.0)
        idle: set[int] = set()
        self.schedule.clock = lambda: self.now
        while not self.schedule.done:
            self.now = now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                place = heapq.heappop(self.events)[1]
                if self._end_piece(place, now):
                    idle.add(place)
            self._hand_out(idle, now)
        return Simulated(
            workers=self.fleet.workers, wall_s=self.now, ideal_s=self.ideal_s, busy_s=self.busy_s, lost_s=self.lost_s,
            lost_pieces=self.lost_pieces,
        )  # fmt: skip

    def _start(self, place: int, at: float) -> float:
        """Start a worker; returns when it is ready."""
        ready = at + self.fleet.startup_s
        rate = self.fleet.failures_per_hour / 3600
        self.workers[place].fails_at = ready + self.rng.expovariate(rate) if rate else math.inf
        heapq.heappush(self.events, (ready, place))
        return ready

    def _hand_out(self, idle: set[int], now: float) -> None:
        """A piece for each idle worker, in the order of the workers, as the executors do it."""
        for place in sorted(idle):
            worker = self.workers[place]
            if worker.fails_at <= now:  # while it had nothing to do; its replacement reports when it is ready
                idle.discard(place)
                self._replace_idle(place, now)
                continue
            span = self.schedule.take()
            if span is None:
                return
            idle.discard(place)
            worker.span, worker.began = span, now
            if span not in self.left:
                self.left[span] = self.seconds(span)
                self.ideal_s += self.left[span]
            ends = now + self.left[span] * worker.factor
            heapq.heappush(self.events, (min(ends, worker.fails_at), place))

    def _replace_idle(self, place: int, now: float) -> None:
        worker = self.workers[place]
        while worker.fails_at <= now:
            ready = worker.fails_at + self.fleet.startup_s
            worker.fails_at = ready + self.rng.expovariate(self.fleet.failures_per_hour / 3600)
        heapq.heappush(self.events, (max(ready, now), place))

    def _end_piece(self, place: int, now: float) -> bool:
        """Finish or lose what a worker computes; returns whether it can be given a piece."""
        worker = self.workers[place]
        span, worker.span = worker.span, None
        if span is None:  # it has just become ready
            return True
        spent = now - worker.began
        self.busy_s += spent
        if now < worker.fails_at:
            self.schedule.finish(span)
            return True
        self.lost_pieces += 1
        every = self.fleet.kept_every_s
        kept = spent // every * every if every else 0.0
        self.left[span] -= kept / worker.factor
        self.lost_s += spent - kept
        self.schedule.lose(span, "its worker failed")
        self._start(place, now)
        return False
