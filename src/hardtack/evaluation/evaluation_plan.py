"""The plan of an evaluation as text: passes, time by its parts, and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hardtack.attacks.pool.search import Cost
from hardtack.base.cost import duration, text_table
from hardtack.base.instruments import Load, busy_note, slower_now
from hardtack.evaluation.calibrate import Calibration, stage_seconds
from hardtack.evaluation.detectors import SAMPLE
from hardtack.evaluation.pass_times import PassTime
from hardtack.evaluation.passes import OFFICIAL, StagePlan
from hardtack.evaluation.rehearsal import Rehearsed
from hardtack.evaluation.threat_stages import AuditPlan


@dataclass(frozen=True)
class Bill:
    """Passes of images, and the seconds they take."""

    forwards: float = 0.0
    backwards: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Bill, times: float = 1.0) -> Bill:
        return Bill(
            self.forwards + times * other.forwards,
            self.backwards + times * other.backwards,
            self.seconds + times * other.seconds,
        )


@dataclass(frozen=True)
class AuditCost:
    """The audit of a threat: `share` of the images are expected to survive; the attacks on a sample of them."""

    plan: AuditPlan
    share: float
    times: tuple[tuple[StagePlan, PassTime], ...] = ()

    def seconds(self, survivors: int, found: Rehearsed) -> float:
        sample = self.plan.size(survivors)
        if not sample:
            return 0.0
        attacks = sum(
            time.setup_s + stage_seconds(stage, time, sample * stage.most.forwards, sample)
            for stage, time in self.times
        )
        return min(sample, SAMPLE) * found.examine_s + found.piece.seconds(sample, 1) + attacks


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cost of an evaluation. `least`: every image is broken at the first check; `most`: no image is broken.

    These bills are of work on images; `start_s` … are in the totals alone.
    """

    title: str
    images: int
    shape: tuple[int, ...]
    classes: int
    stages: tuple[tuple[str, StagePlan], ...]  # with the threat
    tried: Calibration
    least: Bill
    expected: Bill
    most: Bill
    rehearsed: Rehearsed = field(default_factory=Rehearsed)
    audits: tuple[AuditCost, ...] = ()
    start_s: float = 0.0
    setup_s: float = 0.0
    kernels_s: float = 0.0  # of setup_s, for kernels that the plan compiled: they are on disk when the run needs them
    memory_mb: float = 0.0
    on_gpu: bool = False
    load: Load = field(default_factory=Load)
    plan_s: float = 0.0
    official: bool = False  # it has the stages of the official implementation
    keep: bool = True
    piece_rows: Callable[[int], int] = lambda most: most  # rows of a piece, by the share of a worker

    @property
    def per_survivor(self) -> Cost:
        """Passes of an image that is not broken, with its clean prediction and one verification for each stage."""
        always = [stage for _, stage in self.stages if not stage.only]
        total = Cost(1 + len(always), 0)
        for stage in always:
            total = total.plus(stage.most)
        return total

    @property
    def fixed_s(self) -> float:
        """What does not depend on the images: start, first checks, what is set up once, results."""
        return self.start_s + self.once_s + self.rehearsed.after_s

    @property
    def once_s(self) -> float:
        """First checks, kernels, graphs, first calls."""
        return max(0.0, self.rehearsed.begin_s + self.setup_s - self.kernels_s)

    @property
    def audit_s(self) -> float:
        return self._audit(None)

    @property
    def total_s(self) -> float:
        return self.fixed_s + self.expected.seconds + self.audit_s

    @property
    def range_s(self) -> tuple[float, float]:
        """If every image is broken at the first check, and if none is broken."""
        return self.fixed_s + self.least.seconds, self.fixed_s + self.most.seconds + self._audit(self.images)

    def _audit(self, survivors: int | None) -> float:
        return sum(
            audit.seconds(round(self.images * audit.share) if survivors is None else survivors, self.rehearsed)
            for audit in self.audits
        )

    @property
    def disk_mb(self) -> tuple[float, float]:
        """Disk space of the adversarial images: expected, and at most."""
        image = torch.Size(self.shape).numel() * 4 / 2**20 * self.images * bool(self.stages) * self.keep
        broken = self.tried.clean * (1 - self.tried.survivors[-1]) if self.tried.survivors else 0.0
        return image * broken, image

    def __str__(self) -> str:
        stages = self._stages() if self.stages else []
        return "\n".join([*self._head(), *stages, *self._bills(), *self._time(), *self._official(), *self._notes()])

    def _head(self) -> list[str]:
        tried, size = self.tried, "×".join(map(str, self.shape))
        rates = f"{1 / max(tried.forward_s, 1e-9):,.0f} forwards/s"
        rates += f", {1 / tried.gradient_s:,.0f} forward+gradient/s" if tried.gradient_s else ""
        of = "of torch's tensors on the GPU" if self.on_gpu else "of the process, with Python and torch"
        lines = [
            f"plan: {self.title}, {self.images:,} images {size}, {self.classes} classes",
            f"  calibration: {tried.clean:.0%} of {tried.clean_images} clean images are classified correctly",
            f"  {tried.device}, batch {tried.batch_size}"
            + (f", {tried.precision} search" if self.stages else "")
            + f": {rates}",
            f"  memory: {self.memory_mb:,.0f} MB, the peak {of}",
        ]
        if self.stages and tried.attacked:
            correct = ", ".join(f"{share:.0%}" for share in tried.survivors)
            after = "all attacks" if tried.whole else "ten steps of the first attack"
            lines[1] += f"; of {tried.attacked} of these, {correct} after {after}"
        return lines

    def _stages(self) -> list[str]:
        rows = [("stage", "attempts × passes", "image not broken", "broken at once")]
        for threat, stage in self.stages:
            only = f" ({stage.only})" if stage.only else ""
            unknown = "not known"
            most, least = (_cost(stage.most), _cost(stage.least)) if stage.cost_known else (unknown, unknown)
            rows.append((f"{stage.name} {threat}", stage.attempts + only, most, least))
        checks = sum(not stage.only for _, stage in self.stages)
        rows.append(("clean, checks", f"1 + {checks}", _cost(Cost(1 + checks)), ""))
        some = any(stage.only for _, stage in self.stages)
        rows.append(("sum", "without those in parentheses" if some else "", _cost(self.per_survivor), ""))
        return ["", *text_table(rows)]

    def _bills(self) -> list[str]:
        rows = [("all images", "forwards", "backwards", "time")]
        bills = {"all broken at once": self.least, "expected (estimate)": self.expected, "none broken": self.most}
        for name, bill in bills.items() if self.stages else [("total", self.most)]:
            rows.append((name, f"{bill.forwards:,.0f}", f"{bill.backwards:,.0f}", duration(bill.seconds)))
        unknown = [
            f"  {stage.name} is not included: its passes are not known"
            for _, stage in self.stages
            if not stage.cost_known
        ]
        return ["", *text_table(rows), *unknown]

    def _time(self) -> list[str]:
        found, (low, high) = self.rehearsed, self.range_s
        parts = {
            "start and end: imports, data, model": self.start_s,
            "first checks, graphs, first calls": self.once_s, "all images": self.expected.seconds,
            "audit of a sample": self.audit_s, "last checks, results": found.after_s,
        }  # fmt: skip
        rows = [("total", "time")]
        rows += [(name, duration(seconds)) for name, seconds in parts.items() if seconds >= 0.05]
        spread = f" ({duration(low)} to {duration(high)})" if high > 1.2 * low else ""
        rows.append(("sum", duration(self.total_s) + spread))
        expected, most = self.disk_mb
        kept = f"  disk: about {expected:,.1f} MB of adversarial images, at most {most:,.1f} MB (keep=true)"
        return ["", *text_table(rows), *([kept] if self.keep and self.stages else [])]

    def _official(self) -> list[str]:
        if not self.official:
            return []
        total = Cost()
        for cost in OFFICIAL.values():
            total = total.plus(cost)
        each = ", ".join(f"{name} {cost.forwards:,}/{cost.backwards:,}" for name, cost in OFFICIAL.items())
        spared = total.forwards - self.per_survivor.forwards
        return [
            f"  official implementation: {_cost(total)} for an image that is not broken ({each})",
            f"  saved here: {spared} repeated clean passes and checks; and all passes after the first success, because",
            "  the official implementation runs every attack to its last step",
        ]

    def _notes(self) -> list[str]:
        lines = list(self.rehearsed.notes)
        low, high = self.range_s
        if self.stages and high > 1.2 * low:
            lines.append(
                f"the time depends on how many images the attacks break, here judged by {self.tried.attacked} images: "
                "the range is from all broken at once to none"
            )
        if any(audit.plan.escalation for audit in self.audits):
            lines.append("an audit that finds a reason attacks all that is left once more, which is not included")
        if note := busy_note(self.load):
            factor = slower_now(self.load)
            now = f"; times are those of an idle machine, and now it takes {factor:.2g} × as long"
            lines.append(note + (now if factor > 1.05 and not self.on_gpu else "; plan again when it is idle"))
        if self.kernels_s > 0.05:
            lines.append(
                f"kernels were compiled for {duration(self.kernels_s)}; they are on disk, and the run does not wait"
            )
        lines.append(f"planning took {duration(self.plan_s)}")
        return [f"  {line}" for line in lines]


def _cost(cost: Cost) -> str:
    return f"{cost.forwards:,} F" + (f" + {cost.backwards:,} B" if cost.backwards else "")


@dataclass(frozen=True)
class Plans:
    """One plan for each suite; a text for a column of a protocol that cannot be measured."""

    parts: tuple[Plan | str, ...]

    @property
    def plans(self) -> list[Plan]:
        return [part for part in self.parts if isinstance(part, Plan)]

    @property
    def total_s(self) -> float:
        return sum(plan.total_s for plan in self.plans)

    @property
    def range_s(self) -> tuple[float, float]:
        each = [plan.range_s for plan in self.plans]
        return sum(low for low, _ in each), sum(high for _, high in each)

    @property
    def memory_mb(self) -> float:
        return max((plan.memory_mb for plan in self.plans), default=0.0)

    def __str__(self) -> str:
        total = f"expected in total: {duration(self.total_s)}"
        return "\n\n".join([*map(str, self.parts), *([total] if len(self.plans) > 1 else [])])
