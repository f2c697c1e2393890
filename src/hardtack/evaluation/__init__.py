"""Measuring the same way every time."""

from hardtack.evaluation.outcome import Evaluation, Subject
from hardtack.evaluation.suite import SUITES, EvaluationConfig, Sweep, evaluate

__all__ = ["SUITES", "Evaluation", "EvaluationConfig", "Subject", "Sweep", "evaluate"]
