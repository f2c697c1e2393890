"""Measuring the same way every time."""

from hardtack.evaluation.outcome import Evaluation, Subject
from hardtack.evaluation.suite import SUITES, EvaluationConfig, evaluate

__all__ = ["SUITES", "Evaluation", "EvaluationConfig", "Subject", "evaluate"]
