"""The two-minute tour: three ways to train one small vision transformer, attacked and compared."""

from __future__ import annotations

from pathlib import Path

from hardtack.api import evaluate_run, train
from hardtack.report import write_report

RECIPES = ("standard", "adversarial", "trades")
THREAT = "linf:0.1"


def run_demo(folder: str | Path = "runs/demo") -> Path:
    """Train, evaluate and report; returns the page. Repeated, it only redoes what is missing."""
    folder = Path(folder).expanduser()
    for name in RECIPES:
        run = train(f"digits/{name}", output=str(folder / name))
        evaluate_run(run, suite="autoattack,sweep", tier="fast", threat=THREAT)
    return write_report([folder], folder / "report.html")
