"""Suite `curve`: the whole accuracy-against-eps curve from one minimum-norm search."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hardtack.attacks.autoattack import Stage
from hardtack.base.registry import suites
from hardtack.evaluation.sanity import Flag, flag
from hardtack.evaluation.scores import robustness_area
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, robust_results
from hardtack.evaluation.threat_stages import (
    ThreatStages,
    make_attack,
    radius_factors,
    require_threat,
    scaled_threats,
)
from hardtack.results import Result
from hardtack.threats import Threat


@suites.register(
    "curve",
    help="Robust accuracy against eps from one minimum-norm search (fmn): the whole curve for the price of a point.",
)
class CurveSuite(Suite):
    """The size of the smallest perturbation found decides the verdict at every radius."""

    takes = ("threat", "attack", "sweep")
    attacks = True
    curve = True

    def threat_stages(self, config: EvaluationConfig, seed: int) -> list[ThreatStages]:
        radii = scaled_threats(self.threat(config), radius_factors(config))
        attack = require_threat(make_attack(_settings(config), radii[-1], seed), radii[-1])
        return [ThreatStages(threat=radii[-1], stages=(Stage(attack),), radii=tuple(radii[:-1]))]

    def threat(self, config: EvaluationConfig) -> Threat:
        return config.threat or make_attack(_settings(config), None, 0).threat

    def results(self, measurement: Measurement) -> list[Result]:
        measurement = dataclasses.replace(measurement, flags=[*measurement.flags, *_flags(measurement)])
        results = robust_results(measurement, per_class=False)
        return [*results, robustness_area(measurement.columns, results[-1])]


def _flags(measurement: Measurement) -> list[Flag]:
    """An attack that uses its whole radius breaks no image at a smaller one: the curve is far too high there."""
    stages, flags = measurement.threat_stages[0], []
    for stage in stages.stages:
        if stages.threat.norm in stage.attack.smallest_in:
            continue
        in_norms = " and ".join(stage.attack.smallest_in)
        does = f"searches for the smallest perturbation in {in_norms}, not in" if in_norms else "does not search for"
        rest = stages.threat.norm if in_norms else "the smallest perturbation"
        flags.append(
            flag("yellow", "no_minimum_norm",
                 f"{stage.name} {does} {rest}: below the largest radius the curve may be far too high; use attack=fmn, "
                 "or suite=sweep, which attacks at every radius")
        )  # fmt: skip
    return flags


def _settings(config: EvaluationConfig) -> Any:
    """What was given as the attack, fmn where it has no name."""
    settings = config.attack or "fmn"
    return {"name": "fmn", **settings} if isinstance(settings, Mapping) else settings
