"""What several studies cost as one job (`hardtack plan study cauchy scale=short`): runs that they share count once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base.cost import duration, text_table
from hardtack.studies.plan import RunCost, StudyPlan, hours, plan_study, two_digits
from hardtack.studies.request import check_rows


@dataclass(frozen=True, kw_only=True)
class StudyPlans:
    """The plans of the studies, in the order in which they are run."""

    plans: tuple[StudyPlan, ...]

    @property
    def own(self) -> list[list[RunCost]]:
        """By study: the runs that no study before it has trained."""
        trained: set[str] = set()
        own = []
        for plan in self.plans:
            own.append([run for run in plan.runs if run.digest not in trained])
            trained |= {run.digest for run in plan.runs}
        return own

    @property
    def training_hours(self) -> float:
        """On one H200."""
        return sum(run.training_hours for runs in self.own for run in runs)

    @property
    def gpu_hours(self) -> float:
        """On one H200. Measurements that studies share are counted in each."""
        return self.training_hours + sum(run.evaluation_hours for plan in self.plans for run in plan.runs)

    @property
    def total_s(self) -> float:
        """On this machine."""
        training = sum(run.training for runs in self.own for run in runs)
        return (training + sum(run.evaluation for plan in self.plans for run in plan.runs)) / self.plans[0].here

    def __str__(self) -> str:
        first = self.plans[0]
        runs = sum(map(len, self.own))
        rows = [("study", "trainings", "of them new", "train", "measure, at most")]
        for plan, own in zip(self.plans, self.own, strict=True):
            rows.append((
                plan.request.name, str(len(plan.runs)), str(len(own)), hours(sum(run.training_hours for run in own)),
                hours(sum(run.evaluation_hours for run in plan.runs)),
            ))  # fmt: skip
        seeds = f"{first.request.seeds} seed{'s' * (first.request.seeds > 1)}"
        lines = [
            f"plan: {len(self.plans)} studies at scale {first.request.scale}, {seeds}: {runs} trainings",
            *text_table(rows), "",
            f"  one H200: {two_digits(self.gpu_hours)} GPU-hours, {hours(self.training_hours)} of them training",
            f"  this machine ({first.device}): {duration(self.total_s)}, at {first.here:.1e} measured now",
        ]  # fmt: skip
        missing: dict[str, list[str]] = {}
        for plan in self.plans:
            for name in plan.missing:
                missing.setdefault(name, []).append(plan.request.name)
        lines += [f"  data not here: {name}, for {', '.join(studies)}" for name, studies in missing.items()]
        return "\n".join(lines)


def plan_studies(studies: Sequence[str | Path], words: Mapping[str, Any]) -> StudyPlans:
    """The cost of these studies; `words` are those of `hardtack study`. Nothing is tried on this machine."""
    check_rows(studies, words)
    return StudyPlans(plans=tuple(plan_study(str(name), words) for name in studies))
