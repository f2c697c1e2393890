"""The suites: one file each, with what is measured and the numbers that come out (see `contract.py`)."""

from __future__ import annotations

from typing import Any

from hardtack.base.config import choose
from hardtack.base.registry import suites
from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, SuiteContext

__all__ = ["Measurement", "Suite", "SuiteContext", "make_suite", "search_precision", "votes"]


def make_suite(config: EvaluationConfig) -> Suite:
    """The suite of an evaluation, with its own settings (`NAME.key=value`)."""
    own: dict[str, Any] = config.suite_settings.get(config.suite, {})
    suite: Suite = choose(suites, {"name": config.suite, **own}, path=config.suite if own else "")
    return suite


def votes(config: EvaluationConfig) -> int:
    """How many passes of a randomised model decide one prediction."""
    return make_suite(config).votes(config)


def search_precision(config: EvaluationConfig, runtime: Runtime, pixels: int) -> SearchPrecision:
    """What the attacks of an evaluation compute in."""
    return make_suite(config).search_precision(config, runtime, pixels)
