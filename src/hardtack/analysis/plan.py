"""What analyses will cost (`hardtack plan analyze runs/x jacobian`)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

from hardtack.analysis.analysis import AnalysisContext, OverImages
from hardtack.analysis.job import read_analyses
from hardtack.analysis.run import AnalysisJob
from hardtack.base.allocator import keep_freed_memory
from hardtack.base.cost import device_name, duration
from hardtack.base.instruments import Instruments, Stopwatch
from hardtack.engine.job_plan import JobPlan, rehearse


@dataclass(frozen=True)
class AnalysisPlans:
    """One plan for each analysis."""

    parts: tuple[JobPlan, ...]

    @property
    def total_s(self) -> float:
        return sum(part.total_s for part in self.parts)

    @property
    def range_s(self) -> tuple[float, float]:
        return self.total_s, self.total_s

    @property
    def memory_mb(self) -> float:
        return max((part.memory_mb for part in self.parts), default=0.0)

    def __str__(self) -> str:
        total = f"expected in total: {duration(self.total_s)}"
        return "\n\n".join([*map(str, self.parts), *([total] if len(self.parts) > 1 else [])])


def plan_analyses(words: Iterable[str], instruments: Instruments | None = None) -> AnalysisPlans:
    """What `analyze` with the same words will cost."""
    instruments = instruments or Instruments()
    chosen, _, target, config = read_analyses(words)
    device = config.runtime.torch_device
    watch = Stopwatch(instruments, device)
    parts: list[JobPlan] = []
    keep_freed_memory()  # as the analysis does
    model = target.model.to(device)
    instruments.begin_memory(device)
    start_s = watch.since(instruments.began) + instruments.end_s(device)
    for name, analysis in chosen.items():
        began = watch.now()
        with tempfile.TemporaryDirectory() as folder:
            context = AnalysisContext(
                model=model, data=target.images, runtime=config.runtime, name=target.provenance.model
            )
            job = AnalysisJob(analysis, context, folder=folder, provenance=target.provenance)
            times = rehearse(job, job.store, watch, made_s=watch.since(began))
        images = f", {job.context.count:,} images" if isinstance(analysis, OverImages) else ""
        parts.append(
            JobPlan(
                title=f"analysis {name}{images}", device=device_name(config.runtime), unit="rows", rows=job.total,
                jobs=((name, times),), start_s=0.0 if parts else start_s, on_gpu=device.type == "cuda",
                load=instruments.load(device), plan_s=instruments.now().since(began).wall_s,
            )
        )  # fmt: skip
    return AnalysisPlans(tuple(parts))
