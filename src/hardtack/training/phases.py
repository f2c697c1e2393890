"""The phases of a run: stretches of steps that do the same work.

The first epochs may be clean, because the radius of the attack grows; SAM or AWP may begin late. A step of one phase
says little about the time of another.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.training.trainer import Trainer

_LOOKED_AT = 4096  # steps of a run, evenly spread
_FEW = 0.01  # of the steps: such a phase is counted with the next one


@dataclass(frozen=True, kw_only=True)
class Phase:
    """`at`: a late step of the phase, counted from the start of the run."""

    steps: int
    at: int
    attacked: bool = False
    displaced: bool = False

    @property
    def words(self) -> str:
        """`attacked, with displaced weights`."""
        return ("attacked" if self.attacked else "clean") + (", with displaced weights" if self.displaced else "")


def phases(job: Trainer) -> list[Phase]:
    """The phases of a run in the order in which they begin."""
    stride = max(1, job.total / _LOOKED_AT)
    looked_at = [int(number * stride) for number in range(int(job.total / stride))]
    found: dict[tuple[bool, bool], list[int]] = {}
    for step in looked_at:
        found.setdefault(_work(job, step), []).append(step)
    kinds = list(found)
    for place, kind in enumerate(kinds[:-1]):
        if len(found[kind]) < max(1, _FEW * len(looked_at)) or len(found[kind]) == 1 < len(looked_at):
            found[kinds[place + 1]] += found.pop(kind)
    steps = [round(job.total * len(places) / len(looked_at)) for places in found.values()]
    steps[-1] += job.total - sum(steps)
    return [
        Phase(steps=count, at=max(places), attacked=kind[0], displaced=kind[1])
        for count, (kind, places) in zip(steps, found.items(), strict=True)
    ]


def _work(job: Trainer, step: int) -> tuple[bool, bool]:
    """Whether images are attacked in this step, and whether a second gradient is taken at displaced weights."""
    epoch = step / job.steps_per_epoch
    radius = job.objective.radius(epoch)
    attacked = bool(radius) and radius.get("eps_share", 1.0) > 0
    return attacked, job.sharpness.is_active(epoch)
