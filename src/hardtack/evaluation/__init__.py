"""Measuring the same way every time."""

from hardtack.evaluation.outcome import Evaluation
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.settings import SUITES, EvaluationConfig, Sweep
from hardtack.evaluation.suite import evaluate
from hardtack.evaluation.trials import Trial, make_trials, threat_of

__all__ = [
    "SUITES", "Evaluation", "EvaluationConfig", "Provenance", "Sweep", "Trial", "evaluate", "make_trials", "threat_of",
]  # fmt: skip
