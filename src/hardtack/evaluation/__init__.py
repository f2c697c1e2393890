"""Measuring the same way every time."""

from hardtack.evaluation.evaluation import Evaluation
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.settings import EvaluationConfig, Sweep
from hardtack.evaluation.suite import evaluate
from hardtack.evaluation.suites import Measurement, Suite, SuiteContext, make_suite
from hardtack.evaluation.threat_stages import ThreatStages
from hardtack.evaluation.views import ImageView, View

__all__ = [
    "Evaluation", "EvaluationConfig", "ImageView", "Measurement", "Provenance", "Suite", "SuiteContext", "Sweep",
    "ThreatStages", "View", "evaluate", "make_suite",
]  # fmt: skip
