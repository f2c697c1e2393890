"""From the columns of all images to the results of an evaluation."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.evaluation.evaluation import Evaluation, write_evaluation
from hardtack.evaluation.identity import Identity
from hardtack.evaluation.provenance import device_name, versions
from hardtack.evaluation.sanity import Flag, black_box_flags, search_flags
from hardtack.evaluation.scores import clean_results
from hardtack.evaluation.suites import Measurement

Columns = dict[str, np.ndarray]
# flags that concern the accuracy on clean images too
_CLEAN_FLAGS = (
    "random_outputs", "batch_dependent", "call_dependent", "changes_input", "fewer_images",
    "other_classes", "class_names", "untrained",
)  # fmt: skip


def summarise(
    identity: Identity,
    columns: Columns,
    examples: Columns,
    flags: list[Flag],
    folder: str | Path | None,
    *,
    seconds: float,
    audit: Sequence[Mapping[str, Any]] = (),
) -> Evaluation:
    """Results from verdicts; with a folder, everything is written there. `audit`: what audits found, by threat."""
    common, suite = _common(identity, columns, seconds), identity.suite
    common["extra"] |= {"audit": list(audit)} if audit else {}
    measured_flags = list(flags)
    flags = [*identity.provenance.flags, *flags]
    if identity.trials:
        stages = {str(trial.threat): [stage.name for stage in trial.stages] for trial in identity.trials}
        broken_by = common["extra"]["broken_by"]
        flags += search_flags(columns, random=_is_random(flags, identity))
        flags += black_box_flags(broken_by, stages, len(columns["index"]))
    clean_flags = [flag for flag in flags if flag["code"] in _CLEAN_FLAGS]
    results = clean_results(columns, identity.classes, clean_flags, common, whole=suite.all_clean_metrics)
    results += suite.results(
        Measurement(
            columns=columns, threat_stages=identity.trials, views=identity.views, classes=identity.classes, flags=flags,
            common=common,
        )
    )  # fmt: skip
    evaluation = Evaluation(identity.id, tuple(results), columns, examples)
    if folder is not None:
        write_evaluation(
            folder, evaluation, example_facts=_example_facts(identity), facts=identity.facts, common=common,
            flags=measured_flags,
        )  # fmt: skip
    return evaluation


def _example_facts(identity: Identity) -> dict[str, np.ndarray] | None:
    """Of attacked images, their threat and the classes' names; None where no examples are kept."""
    if not identity.trials or identity.suite.curve:
        return None
    return {"threat": np.array(str(identity.trials[-1].threat)), "classes": np.array(identity.classes)}


def _is_random(flags: list[Flag], identity: Identity) -> bool:
    """Whether predictions are random: then a success that is not confirmed is no fault of the attack."""
    eot = [stage.attack.eot for trial in identity.trials for stage in trial.stages]
    return any(flag["code"] == "random_outputs" for flag in flags) or max(eot, default=1) > 1


def _common(identity: Identity, columns: Columns, seconds: float) -> dict[str, Any]:
    """The fields that all results of an evaluation share."""
    provenance, runtime = identity.provenance, identity.runtime
    seed = runtime.seed
    return {
        "suite": identity.suite_name, "evaluation": identity.id, "data": identity.data,
        "data_description": identity.data_description, "run": provenance.run, "model": provenance.model,
        "checkpoint": provenance.checkpoint, "weights_sha256": provenance.weights_sha256,
        "seed": next((s.attack.seed for t in identity.trials for s in t.stages if "seed" in s.attack.settings()), seed),
        "precision": "fp32" if identity.views else f"{identity.precision} search, fp32 verified",
        "device": device_name(runtime),
        "seconds": round(seconds, 3), "versions": versions(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "verdicts": f"verdicts/{identity.id}.parquet",
        "extra": {
            "words": list(provenance.words), "parameters": identity.parameters, "seconds": identity.seconds,
            **({"source": identity.source} if identity.source else {}),
            **_passes(identity, columns),
        },
    }  # fmt: skip


def _passes(identity: Identity, columns: Columns) -> dict[str, Any]:
    """Passes through the model, and for attacks how many images each of them broke."""
    if identity.views:
        each, n = [view.cost for view in identity.views], len(columns["index"])
        return {
            "forwards": n * (1 + sum(cost.forwards for cost in each)),
            "backwards": n * sum(cost.backwards for cost in each),
        }
    return {
        "unverified": int(columns["unverified"].sum()), "forwards": int(columns["forwards"].sum()),
        "backwards": int(columns["backwards"].sum()), "broken_by": _counts(columns["broken_by"]),
    }  # fmt: skip


def _counts(names: np.ndarray) -> dict[str, int]:
    """How many images each attack broke."""
    attacks, counts = np.unique(np.array([name for name in names if name is not None], dtype=str), return_counts=True)
    return dict(zip(attacks.tolist(), counts.tolist(), strict=True))
