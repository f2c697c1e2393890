"""Measuring the same way every time."""

from hardtack.evaluation.outcome import Evaluation, Subject
from hardtack.evaluation.suite import evaluate
from hardtack.evaluation.trials import SUITES, EvaluationConfig, Sweep, Trial, make_trials, threat_of

__all__ = [
    "SUITES", "Evaluation", "EvaluationConfig", "Subject", "Sweep", "Trial", "evaluate", "make_trials", "threat_of",
]  # fmt: skip
