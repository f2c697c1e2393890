"""The contract Suite: what an evaluation measures, how, and which numbers come out.

    @suites.register("blur", help="accuracy on blurred images")
    @dataclass(frozen=True, kw_only=True)
    class Blur(Suite):
        radius: int = 2                                     # typed as blur.radius=3

        def views(self, config, context): ...               # what the model is shown

        def results(self, measurement): ...                 # numbers from the columns of all images

One file per suite, registered in `suites`; a file of the user's works in the same way (`--import FILE.py`). A suite
attacks the images (`threat_stages`), or shows the model other views of them (`views`), or does neither (`clean`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import nn

from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.data.original import Original
from hardtack.evaluation.sanity import Flag
from hardtack.evaluation.scores import accuracy
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.threat_stages import ThreatStages, all_threats, eot_votes
from hardtack.evaluation.views import View
from hardtack.results import Result, bootstrap, wilson
from hardtack.threats import Threat

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class SuiteContext:
    """What views may depend on: the model, the shape C×H×W of the images, the seed, and what they were resized from."""

    model: nn.Module
    shape: Sequence[int]
    seed: int
    original: Original | None = None

    @property
    def largest_side(self) -> int:
        return max(self.shape[1:])


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was measured on all images, from which a suite makes its results.

    columns         one value per image, by name: those of `clean_columns`, of the views, or of the attacks
    threat_stages   the attacks, with all settings filled in
    views           what the model was shown
    flags           warnings that belong to the results
    common          the fields that all results share (data, model, device, versions …)
    """

    columns: Columns
    threat_stages: Sequence[ThreatStages]
    views: Sequence[View]
    classes: Sequence[str]
    flags: Sequence[Flag]
    common: Mapping[str, Any]

    def mean(self, metric: str, per_image: np.ndarray, **fields: Any) -> Result:
        """A result with 95 % interval: the share of True (Wilson's) or the mean of numbers (bootstrap)."""
        values = np.asarray(per_image)
        binary = values.dtype == bool
        low, high = wilson(int(values.sum()), len(values)) if binary else bootstrap(values.astype(float))
        source = {"source": self.views[0].source} if self.views else {}
        common = {**self.common, "flags": tuple(self.flags), "extra": {**self.common["extra"], **source}}
        return Result(
            metric=metric, value=float(values.mean()), n=len(values), low=low, high=high,
            interval="wilson 95%" if binary else "bootstrap 95%", **{**common, **fields},
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What an evaluation measures. Its dataclass fields are settings of its own, typed as NAME.key=value.

    takes                 the settings of EvaluationConfig that this suite uses, besides those that all suites use
    attack_keys           the settings `attack.…` that it takes; None: all of them
    attacks               whether it attacks images, and so has a threat
    curve                 whether its results belong to many radii and are drawn as a curve
    accepts_all_settings  whether settings of other suites are ignored instead of refused
    all_clean_metrics     whether top-5 accuracy and calibration on the unchanged images are reported too
    """

    takes: ClassVar[tuple[str, ...]] = ()
    attack_keys: ClassVar[tuple[str, ...] | None] = None
    attacks: ClassVar[bool] = False
    curve: ClassVar[bool] = False
    accepts_all_settings: ClassVar[bool] = False
    all_clean_metrics: ClassVar[bool] = False

    def threat_stages(self, config: EvaluationConfig, seed: int) -> list[ThreatStages]:
        """The attacks, threat by threat."""
        return []

    def views(self, config: EvaluationConfig, context: SuiteContext) -> Sequence[View]:
        """What the model is shown instead of the images."""
        return []

    def results(self, measurement: Measurement) -> list[Result]:
        """Numbers besides clean accuracy. By default robust accuracy at every threat, and the worst case over all."""
        return robust_results(measurement, per_class=not self.curve)

    @classmethod
    def text_table(cls, results: Sequence[Result]) -> list[str]:
        """Lines for the terminal that show the results of metrics with `per_view`, which are not printed one by one."""
        return []

    def threat(self, config: EvaluationConfig) -> Threat:
        """The threat of the evaluation, for the record."""
        return all_threats(config)[0]

    def votes(self, config: EvaluationConfig) -> int:
        """How many passes of a randomised model decide one prediction: as many as the attack averages."""
        return eot_votes(config) if "attack" in self.takes else 1

    def chooses_precision(self, config: EvaluationConfig) -> bool:
        """Whether `search_precision` depends on the device, so that another machine may choose another one."""
        return False

    def search_precision(self, config: EvaluationConfig, runtime: Runtime, pixels: int) -> SearchPrecision:
        """What attacks compute in (`pixels`: values in one image). Verdicts are always confirmed in fp32."""
        return runtime.precision


def robust_results(measurement: Measurement, *, per_class: bool = True) -> list[Result]:
    """Robust accuracy at every threat, then the worst case over all threats where there are several."""
    columns, common, flags = measurement.columns, measurement.common, measurement.flags
    classes = measurement.classes if per_class else ()
    results = []
    for stages in measurement.threat_stages:
        words = _attack_fields(stages, common["extra"])
        if stages.protocol:
            words["extra"]["stages"] = stages.details
        for threat in (*stages.radii, stages.threat):
            fields = {**common, **words, "threat": str(threat)}
            robust = columns[f"robust@{threat}"]
            results.append(accuracy("robust_accuracy", robust, columns["label"], classes, flags, fields))
    if len({str(stages.threat) for stages in measurement.threat_stages if not stages.follows}) > 1:
        threats = "+".join(str(stages.threat) for stages in measurement.threat_stages)
        fields = {**common, **_attack_fields(measurement.threat_stages[0], common["extra"]), "threat": threats}
        results.append(accuracy("worst_case_accuracy", columns["robust"], columns["label"], classes, flags, fields))
    return results


def _attack_fields(stages: ThreatStages, extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a result says of its attack; `limits` where a threat alone does not say what may change."""
    limits = [stage.attack.limits for stage in stages.stages]
    limited = {"limits": " or ".join(dict.fromkeys(limits))} if all(limits) else {}
    return {"attack": stages.words, "attack_settings": stages.settings, "extra": {**extra, **limited}}
