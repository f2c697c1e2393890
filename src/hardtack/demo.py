"""The two-minute tour: three ways to train one small vision transformer, attacked, compared and looked into."""

from __future__ import annotations

import json
from pathlib import Path

from hardtack.analyzing import analyze_words
from hardtack.api import evaluate_run, train
from hardtack.report import write_report

RECIPES = ("standard", "adversarial", "trades")
THREAT = "linf:0.1"


def run_demo(folder: str | Path = "runs/demo") -> Path:
    """Train, evaluate, analyze and report; returns the page. Repeated, it only redoes what is missing."""
    folder = Path(folder).expanduser()
    runs = [folder / name for name in RECIPES]
    for name, run in zip(RECIPES, runs, strict=True):
        train(f"digits/{name}", output=str(run))
        evaluate_run(run, suite="autoattack,sweep", tier="fast", threat=THREAT)
    for run in runs:
        list(analyze_words([str(run), "jacobian", "attention", "n=16"]))
    beside = json.dumps([str(run) for run in runs[1:]])
    made = [f"perturbations.threat={THREAT}", "perturbations.attack.steps=20", f"perturbations.others={beside}"]
    list(analyze_words([str(runs[0]), "perturbations", "n=32", *made]))
    return write_report([folder], folder / "report.html")
