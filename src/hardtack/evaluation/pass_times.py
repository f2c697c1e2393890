"""How long a pass of a search takes, for a plan: tried with the search itself, in the pool that will run it.

A pass of the pool takes some time however few images it holds, and some more for each of them. Both follow from two
widths. The searches are tried with a radius that breaks next to no image, so that every slot stays busy.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import nn

from hardtack.attacks.adaptive import AdaptiveAttack
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.contract import Attack, settings_of
from hardtack.attacks.pool.attack_run import Pools, counted
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.base.instruments import Stopwatch

STEPS = 10
MORE_STEPS, MORE_STEPS_S = 50, 0.5  # of quick searches so many are tried, as far as they take no longer
BUDGET_S = 1.5  # for one search at one width; searches are tried with fewer images where they are slower
_HARMLESS = Fraction(1, 10_000)  # of the radius


class PassTime(NamedTuple):
    """Seconds of the passes of a search: `each_s` for an item in a pass, `fixed_s` for a pass of the pool.

    `record_s`: at the beginning of every stage, for its graph; `setup_s`: once.
    """

    each_s: float = 0.0
    fixed_s: float = 0.0
    setup_s: float = 0.0
    record_s: float = 0.0
    width: int = 1  # items in a pass, at most

    def seconds(self, items: float, chain: float = 0.0) -> float:
        """Without what is set up once. `items`: passes of all items; `chain`: passes that must follow each other."""
        if items <= 0:
            return 0.0
        return self.record_s + self.each_s * items + self.fixed_s * max(items / self.width, chain)


class PassTimes:
    """Pass times of the searches of an evaluation, each tried once. `gradient_s`: of one image, about."""

    def __init__(
        self, model: nn.Module, pool: Pool, inputs: AttackInputs, watch: Stopwatch, *, gradient_s: float
    ) -> None:
        self.model, self.pool, self.watch, self.gradient_s = model, pool, watch, gradient_s
        self.inputs = inputs._replace(y=inputs.clean.argmax(dim=1))
        self.pools = Pools(model, pool, inputs.x[:8])
        self.missing_mb = 0.0  # memory of a whole batch beyond that of the largest that was tried
        self._known: dict[str, PassTime | None] = {}

    def of(self, stage: Stage, items: int) -> PassTime | None:
        """For a stage that has so many items at once; None where the attack cannot be tried in a short form."""
        width = max(1, min(self.pool.batch_size, items))
        key = repr([type(stage.attack).__name__, _what_decides(stage.attack), stage.exact, stage.fine, width])
        if key not in self._known:
            self._known[key] = self._pooled(stage, width) if stage.attack.pooled else self._called(stage, width)
        return self._known[key]

    # ------------------------------------------------------------ in the pool

    def _pooled(self, stage: Stage, width: int) -> PassTime | None:
        pool, attack = self.pools.of(stage), _harmless(stage.attack)
        affordable = BUDGET_S / (attack.eot * max(self.gradient_s, 1e-9))  # images in all passes of a run
        full = max(min(width, 4), min(width, int(affordable / STEPS)))
        few = max(2, min(STEPS, int(affordable / full)))
        small = max(1, full // 4)
        if attack.shortened(few) is None:
            return None
        started = self._run(attack, pool, small, few)
        first = self._run(attack, pool, full, few)
        steps = min(attack.steps or few, MORE_STEPS, max(few, int(MORE_STEPS_S / max(first.pass_s, 1e-9))))
        fewer = self._best(attack, pool, small, steps)
        steady = self._best(attack, pool, full, steps) if small < full else fewer
        if small < full < width:
            each_mb = (first.peak_mb - started.peak_mb) / (full - small)
            self.missing_mb = max(self.missing_mb, each_mb * (width - full))
        each_s = max(0.0, (steady.pass_s - fewer.pass_s) / (full - small)) if small < full else 0.0
        each_s = min(each_s, steady.pass_s / full)
        fixed_s = max(0.0, steady.pass_s - full * each_s)
        if small == full and full == 1:
            each_s, fixed_s = steady.pass_s, 0.0
        firsts = ((started, fewer), (first, steady)) if small < full else ((started, steady),)
        setup_s = sum(max(0.0, one.seconds - again.record_s - one.passes * again.pass_s) for one, again in firsts)
        return PassTime(each_s, fixed_s, setup_s, steady.record_s, self.pool.batch_size)

    def _best(self, attack: Attack, pool: Pool, width: int, steps: int) -> _Tried:
        """The quicker of two runs, where they are short: other processes only ever add to their time."""
        tried = self._run(attack, pool, width, steps)
        if tried.seconds > MORE_STEPS_S or self.watch.device.type == "cuda":
            return tried
        return min(tried, self._run(attack, pool, width, steps), key=_pass_s)

    def _run(self, attack: Attack, pool: Pool, width: int, steps: int) -> _Tried:
        short = attack.shortened(steps)
        assert short is not None
        rows, recorded_s, began = filled(self.inputs, width), pool.recorded_s, self.watch.now()
        record = pool.run(short, rows)
        seconds, record_s = self.watch.since(began), pool.recorded_s - recorded_s
        passes = float(record.total_passes().mean())
        peak_mb = self.watch.instruments.peak_mb(self.watch.device)
        return _Tried(seconds, max(0.0, seconds - record_s) / max(passes, 1.0), passes, record_s, peak_mb)

    # ------------------------------------------------------------ batch by batch

    def _called(self, stage: Stage, width: int) -> PassTime | None:
        """Seconds of one forward pass of an image, its share of everything else included."""
        attack, pool = stage.attack, self.pools.of(stage)
        stated = attack.batch_cost(self.inputs.clean.shape[1], tuple(self.inputs.x.shape[1:]))
        short = attack.shortened(STEPS)
        passes = STEPS if short is not None else stated.forwards if stated is not None else attack.steps or 1000
        affordable = int(BUDGET_S / (max(passes, 1) * max(self.gradient_s, 1e-9)))
        if short is None and affordable < 1:
            return None
        rows = filled(self.inputs, max(1, min(width, max(4, affordable))))
        try:
            first_s, first = self._called_once(short or attack, pool, rows)
            again_s, again = self._called_once(short or attack, pool, rows)
        except (TypeError, AttributeError, ValueError):  # the attack fails on these images: it says so in its own run
            return None
        if not again:
            return None
        each_s = again_s / again
        return PassTime(each_s, setup_s=max(0.0, first_s - first * each_s), width=pool.batch_size)

    def _called_once(self, attack: Attack, pool: Pool, rows: AttackInputs) -> tuple[float, int]:
        began = self.watch.now()
        with counted(self.model) as spent, pool.runtime.arithmetic(pool.precision):
            attack.search(self.model, rows.x, rows.y, keys=rows.keys, verdict=True)
        return self.watch.since(began), spent[0]


class _Tried(NamedTuple):
    seconds: float
    pass_s: float  # of the pool, without recording
    passes: float
    record_s: float
    peak_mb: float


def _pass_s(tried: _Tried) -> float:
    return tried.pass_s


def filled(inputs: AttackInputs, width: int) -> AttackInputs:
    """So many images, by repeating the given ones."""
    return inputs.of(torch.arange(width, device=inputs.x.device) % len(inputs.x))


def _harmless(attack: Attack) -> Attack:
    """The same search with a radius that changes next to no prediction, where it has a radius of its own."""
    if isinstance(attack, AdaptiveAttack):
        return dataclasses.replace(attack, attack=_harmless(attack.attack))
    if "threat" not in settings_of(attack):
        return attack
    return dataclasses.replace(attack, threat=attack.threat.scaled(_HARMLESS))  # type: ignore[type-var]


def _what_decides(attack: Attack) -> dict[str, Any]:
    """The settings that the time of a pass depends on."""
    left_out = ("seed", "steps", "restarts", "targets", "plans")
    settings = {key: value for key, value in attack.settings().items() if key not in (*left_out, "threat", "attack")}
    if isinstance(attack, AdaptiveAttack):
        settings["attack"] = _what_decides(attack.attack)
    return settings | {"norm": attack.threat.norm}
