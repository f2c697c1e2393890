"""`hardtack demo`: three ways to train one small vision transformer, attacked, analysed and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hardtack.base.files import local_path
from hardtack.base.registry import verbs
from hardtack.commands.words import say

RECIPES = ("standard", "adversarial", "trades")
THREAT = "linf:0.1"


@verbs.register("demo")
def demo(
    folder: Annotated[Path, typer.Option("--folder", help="where the runs and the report go")] = Path("runs/demo"),
    open_page: Annotated[bool, typer.Option("--open", help="open the report in a browser")] = False,
) -> None:
    """Train, attack and analyse three small vision transformers on the bundled digits: about two minutes on a CPU."""
    page = run_demo(folder)
    say(f"report: {page}")
    if open_page:
        typer.launch(page.resolve().as_uri())


def run_demo(folder: str | Path = "runs/demo") -> Path:
    """Train, evaluate, analyze and report; returns the path of the page. Repeated, it only does what is missing."""
    from hardtack.analysis.job import analyze_words
    from hardtack.commands.train import train
    from hardtack.evaluation.job import evaluate_run
    from hardtack.report import write_report

    folder = local_path(folder)
    runs = [folder / name for name in RECIPES]
    for name, run in zip(RECIPES, runs, strict=True):
        train(f"digits/{name}", output=str(run))
        evaluate_run(run, suite="autoattack,sweep", tier="fast", threat=THREAT)
    for run in runs:
        list(analyze_words([str(run), "jacobian", "attention", "n=16"]))
    others = json.dumps([str(run) for run in runs[1:]])
    settings = [f"perturbations.threat={THREAT}", "perturbations.attack.steps=20", f"perturbations.others={others}"]
    list(analyze_words([str(runs[0]), "perturbations", "n=32", *settings]))
    return write_report([folder], folder / "report.html")
