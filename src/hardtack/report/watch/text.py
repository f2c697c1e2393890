"""The state of all jobs as lines of text, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hardtack.report import wording


def status_lines(state: Mapping[str, Any]) -> list[str]:
    """One line for each job, and one for each problem."""
    lines = [_line(job) for job in state["jobs"]]
    lines = lines or [f"no job below {', '.join(state['watched'])} yet"]
    return [*lines, *(f"not readable: {problem}" for problem in state["problems"])]


def _line(job: Mapping[str, Any]) -> str:
    parts = [f"{job['name']}: {job['kind']} {job['state']}"]
    if job["kind"] == "training":
        parts.append(f"epoch {job['epoch']:g}" + (f" of {job['epochs']:g}" if job["epochs"] else ""))
        parts += [f"loss {job['last']['loss']:.4g}"] if "loss" in job["last"] else []
        for name, title in (("validation", "clean"), ("validation_robust", "robust")):
            parts += [f"{title} {100 * job['last'][name]:.1f}% (validation)"] if name in job["last"] else []
    parts += job.get("facts", [])
    parts += [f"{wording.duration(job['left_s'])} left"] if job["left_s"] is not None else []
    parts += job.get("results", [])
    return ", ".join(parts)
